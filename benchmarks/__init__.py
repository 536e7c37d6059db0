"""Speed and memory beside the programs that a user would pick instead: ratios of one run, never pass or fail."""
