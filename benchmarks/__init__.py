"""Speed and memory beside what a user would pick instead. Ratios of one run, never pass or fail."""
