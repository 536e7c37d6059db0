"""How the operator asks the Kubernetes API, is told by it, and writes to it."""
