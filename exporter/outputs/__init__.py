"""The outputs that people and tools read, a file for each: a Snapshot in, bytes out."""
