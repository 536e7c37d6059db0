"""`doctor`: what works on this node, what does not, why, and what to do."""
