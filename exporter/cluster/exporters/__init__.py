"""The node exporters of a cluster: where they are, what each says, and what is kept of it."""
