"""CDI specs: what they say, and the source that follows them."""
