"""Bundles: all that an exporter saw on a node, in one file that a user sends and a machine plays back."""
