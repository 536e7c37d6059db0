"""The exporter's own families: a group a file, and in it name, type, help, labels and filling side by side."""
