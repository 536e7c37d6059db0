"""`kubectl gpu`: who holds GPUs and why not, asked through the API server's proxy by kubectl's own binary."""
