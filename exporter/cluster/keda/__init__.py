"""KEDA's external scaler: the numbers of /autoscale/, over gRPC."""
