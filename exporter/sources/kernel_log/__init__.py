"""The source of the kernel's log."""
