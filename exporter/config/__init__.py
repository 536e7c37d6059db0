"""Configuration: what can be set, and the files that settings name."""
