"""The frozen types that travel between rooms.

Units stand in names, None is unknown (never 0), sequences are tuples.
"""
