"""The answers of the cluster role, a file for each path. table.py lists them all."""
