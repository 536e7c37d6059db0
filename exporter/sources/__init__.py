"""The sources: each asks a peer and turns its bytes into a reading, or raises a SourceError."""
