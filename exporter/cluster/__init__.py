"""The cluster role: it asks the exporters of all nodes, or Prometheus, and answers for all at once."""
