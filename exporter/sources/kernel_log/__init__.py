"""The kernel's log."""
