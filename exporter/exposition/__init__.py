"""The Prometheus text format, and the join of a page with owners. Pure; the hot path."""
