"""Each source asks a peer. It makes a reading of the answer, or raises a SourceError."""
