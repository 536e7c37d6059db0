"""Objects of the Kubernetes API: their kinds, names and fields, and what it takes to make one as it is wanted. Pure."""
