"""What the exporter answers, a file for each path: a Snapshot in, bytes out."""
