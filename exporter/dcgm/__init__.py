"""What is known of DCGM: fields, a row each, errors, and other vendors' families. Pure."""
