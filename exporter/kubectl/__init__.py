"""`kubectl gpu`: who holds which GPU, and why a pod has none. It asks by kubectl, through the API server."""
