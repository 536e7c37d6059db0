"""What is known of DCGM's fields, one row each. Pure."""
