"""`doctor`: the findings about this node: what works, what does not, why, and what to do."""
