"""The sources of pages of GPU samples: a URL, a file, and pods of dcgm-exporter that discovery finds."""
