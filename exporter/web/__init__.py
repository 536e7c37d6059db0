"""HTTP: who may ask, how many at once, and the listening sockets."""
