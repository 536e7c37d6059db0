"""The exporter's own metric families, a file for each group.

Name, type, help, labels and filling of a family stand side by side.
"""
