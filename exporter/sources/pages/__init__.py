"""Pages of GPU samples: from a URL, a file, or pods of dcgm-exporter."""
