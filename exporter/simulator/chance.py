"""Chance that depends on what is asked alone: the same seed and the same time give the same number, in any order."""

from functools import lru_cache
from hashlib import blake2b

_MOST = 2**64


@lru_cache(maxsize=1024, typed=True)  # most of what is asked was asked a second ago
def chance(*of: object) -> float:
    """A number from 0 (included) to 1 (excluded), by everything that is named."""
    return int.from_bytes(blake2b(repr(of).encode(), digest_size=8).digest()) / _MOST
