"""Generated from protos/."""
