"""The data of a span in a Prometheus server, for the report: asked for piece by piece, with patience."""
