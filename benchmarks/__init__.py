"""Speed and memory, measured side by side with what a user would pick instead. Ratios of one run, never pass or fail."""
