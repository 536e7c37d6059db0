"""The push by OTLP: metrics.py turns a look at the node into OpenTelemetry's metrics, messages.py packs them.

points.py has the types, subjects.py the devices and containers that points describe, starts.py the times from which
sums count.
"""
