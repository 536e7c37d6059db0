"""DCGM's fields: the known facts, one row for each field. Pure."""
