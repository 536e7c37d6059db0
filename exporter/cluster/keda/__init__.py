"""KEDA's external scaler: the same numbers as at /autoscale/, as KEDA asks for them over gRPC."""
