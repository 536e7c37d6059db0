"""Prometheus, Thanos or Mimir as the one source for all nodes."""
