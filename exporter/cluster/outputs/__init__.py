"""The answers of the cluster role, a file for each path; cluster_outputs.py lists them."""
