"""The sources that ask the Kubernetes API."""
