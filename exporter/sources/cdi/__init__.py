"""CDI specs: their reader, and the source that follows their files."""
