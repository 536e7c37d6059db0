"""Whose device is it: device ids, owners, and the labels that say so. Pure."""
