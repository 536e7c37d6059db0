"""The node role: a look at the node, and the parts that make it."""
