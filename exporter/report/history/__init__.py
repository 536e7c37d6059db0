"""What a Prometheus server has kept of a span of time, for the report: asked piece by piece, with patience."""
