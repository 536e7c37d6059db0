"""The Kubernetes API."""
