"""Whose device is it: device ids, owners, and the labels that name the owner. Pure."""
