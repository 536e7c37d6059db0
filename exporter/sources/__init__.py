"""Where facts come from, one file each: bytes in, a reading or a SourceError out."""
