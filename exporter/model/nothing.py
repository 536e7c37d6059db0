"""The empty mapping that nobody can fill, for values that have nothing yet.

Tests: tests/ownership/test_owners.py.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

NOTHING: Mapping[Any, Any] = MappingProxyType({})


def nothing() -> Mapping[Any, Any]:
    """`NOTHING`, as a dataclass wants the default of a field: `field(default_factory=nothing)`."""
    return NOTHING
