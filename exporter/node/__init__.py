"""The node role: its parts put together, a look at the node, and the page of the moment."""
