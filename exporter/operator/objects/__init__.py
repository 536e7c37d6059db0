"""Kubernetes objects: kinds, names, fields, and the changes that they need. Pure."""
