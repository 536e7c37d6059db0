"""Objects of the Kubernetes API: their kinds, names and fields, and the changes that they need. Pure."""
