"""The cluster role: it asks all node exporters, or Prometheus, and answers for all nodes."""
