"""Reads, watches and writes objects of the Kubernetes API."""
