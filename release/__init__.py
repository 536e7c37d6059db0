"""The programs that make a release. None of them runs on a node."""
