"""Asks the node exporters of a cluster, and reads their answers."""
