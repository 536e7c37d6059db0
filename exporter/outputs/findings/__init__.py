"""What `doctor` says, finding by finding."""
