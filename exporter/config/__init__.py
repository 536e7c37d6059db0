"""The configuration: the settings, and the files that settings name."""
