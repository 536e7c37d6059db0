"""The node exporters of a cluster: their places, their answers, and the last answer of each."""
