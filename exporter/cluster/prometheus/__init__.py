"""Prometheus, or a server with its API (Thanos, Mimir), as the source that knows all nodes."""
