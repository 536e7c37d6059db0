"""A node that answers as the peers in a bundle did, for the real exporter in front of it."""
