"""Asks a Prometheus server for the data of a span, piece by piece."""
