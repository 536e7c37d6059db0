"""Settings, by their flags.

Tests: tests/bundle/names/test_collected.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from exporter.bundle.names.common_words import listed
from exporter.bundle.names.names_in_fields import NamesInFields
from exporter.bundle.names.names_in_texts import NamesInTexts

_NAMESPACES = listed("claims.admin-namespaces allocators.reservation-namespaces dcgm.selector-namespace")
# whose values are nothing but names
NAMING_FLAGS: Final = _NAMESPACES | {"node-name"}
_SELECTORS = listed("dcgm.selector")
_LABEL_KEYS = listed("workload.labels")
_LABEL_PATTERNS = listed("labels.pod-labels")


class NamesInSettings:
    """Replaces the names in settings."""

    def __init__(self, scanner: NamesInTexts, fields: NamesInFields) -> None:
        self._scanner = scanner
        self._fields = fields

    def all(self, settings: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """All settings."""
        return {flag: tuple(self._values(flag, values)) for flag, values in settings.items()}

    def _values(self, flag: str, values: Iterable[str]) -> Iterator[str]:
        """The values of a flag, which may become more."""
        for value in values:
            if flag == "resources":
                yield ",".join(chain.from_iterable(map(self._fields.resource_patterns, value.split(","))))
            else:
                yield self.value(flag, value)

    def value(self, flag: str, value: str) -> str:
        """A value of a flag."""
        if flag == "node-name":
            return self._fields.name("node", value)
        if flag in _NAMESPACES:
            return ",".join(self._fields.name("namespace", name) for name in value.split(","))
        if flag in _LABEL_KEYS:
            return ",".join(self._fields.label_key(key) for key in value.split(","))
        if flag in _SELECTORS:
            return self._fields.selector(value)
        if flag == "labels.names":
            return self._fields.label_names(value)
        if flag in _LABEL_PATTERNS:
            return self._fields.label_pattern(value)
        return self._scanner.strict(value)
