"""HTTP: who may ask, how many clients at once, and the listening sockets."""
