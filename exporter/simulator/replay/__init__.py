"""A node that answers as the peers in a bundle did."""
