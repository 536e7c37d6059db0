"""The Kubernetes API, limited to this node."""
