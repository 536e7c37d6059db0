"""The node exporters of a cluster: where they are, and the last answer of each."""
