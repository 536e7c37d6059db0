"""The source of the machine itself: its driver and kernel, and the driver's device files."""
