"""Questions to the node exporters of a cluster, and the readers of their answers."""
