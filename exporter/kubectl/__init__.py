"""`kubectl gpu`: holders of GPUs, and why a pod has none. kubectl's own binary asks, through the API server's proxy."""
