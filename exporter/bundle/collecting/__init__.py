"""Makes a recording: looks at a node, with the answers of the exporter's peers."""
