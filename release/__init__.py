"""What makes a release; nothing of it runs on a node."""
