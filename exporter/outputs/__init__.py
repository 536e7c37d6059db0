"""What people and tools read, one file each: a Snapshot in, bytes out."""
