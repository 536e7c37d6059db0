"""The types that travel between rooms: plain, frozen, without behaviour beyond reading themselves.

Units stand in names (`_seconds`). `None` is unknown, never 0. Tuples, not lists.
"""
