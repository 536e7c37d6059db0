"""Whose device it is: ids, owners, their labels, and the health of devices. Pure."""
