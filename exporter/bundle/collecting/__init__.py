"""The making of a recording: looks at a node of an exporter's settings, with what its peers answered."""
