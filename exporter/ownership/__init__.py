"""Owners of devices: device ids, the containers that hold the devices, and the labels that name the owner. Pure."""
