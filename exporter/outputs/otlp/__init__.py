"""What is pushed by OTLP: metrics.py says what a look at the node is in OpenTelemetry's words, messages.py packs it."""
