"""The operator's access to the Kubernetes API: reading, watching and writing."""
