"""The settings, and the files that settings name."""
