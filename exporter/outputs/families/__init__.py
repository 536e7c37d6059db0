"""The exporter's own families: a file for each group, with name, type, help, labels and filling side by side."""
