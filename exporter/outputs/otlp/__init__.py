"""What is pushed by OTLP: metrics.py says what a look at the node is in OpenTelemetry's words, messages.py packs it.

points.py has the types, subjects.py what points are of, starts.py since when sums count.
"""
