"""The command line: a file for each command, without logic of its own."""
