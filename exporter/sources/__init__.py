"""What reads a peer, one file each: bytes in, a reading or a SourceError out."""
