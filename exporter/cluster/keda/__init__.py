"""KEDA's external scaler: the numbers of /autoscale/, for KEDA, which asks over gRPC."""
