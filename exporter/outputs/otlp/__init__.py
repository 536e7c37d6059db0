"""The push by OTLP: a look at the node as OpenTelemetry's metrics.

metrics.py makes them, messages.py packs them.
points.py has the types, subjects.py the devices and containers that points describe, starts.py the times from which
sums count.
"""
