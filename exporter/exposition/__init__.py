"""The Prometheus text format: reading lines, the shape of a page, the join. Pure; the hot path lives here."""
