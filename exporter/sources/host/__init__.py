"""The machine itself: its driver, its kernel, and the driver's device files."""
