"""What each container had of each device, look by look: time, energy, errors. Pure."""
