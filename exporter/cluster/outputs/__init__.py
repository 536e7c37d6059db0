"""What the cluster role answers. One file a path; table.py: all of them."""
