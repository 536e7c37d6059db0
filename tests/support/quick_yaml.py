"""YAML by libyaml, where PyYAML has it: in Python alone, to read the manifests takes a tenth of what all tests take."""

from collections.abc import Iterator
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(text: str) -> Any:
    """As yaml.safe_load."""
    return yaml.load(text, _LOADER)  # noqa: S506 - a SafeLoader


def load_all(text: str) -> Iterator[Any]:
    """As yaml.safe_load_all."""
    return iter(yaml.load_all(text, _LOADER))
