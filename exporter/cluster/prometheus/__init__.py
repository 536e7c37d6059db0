"""Prometheus, or what answers as it does (Thanos, Mimir), as the place where all nodes are known."""
