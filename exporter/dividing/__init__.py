"""Divides a device's values among its owners (`--sharing`), in exact decimals. Pure."""
