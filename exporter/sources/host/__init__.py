"""The machine itself: its driver and kernel, and the device files of the driver."""
