"""Settings, by their flags."""

from collections.abc import Mapping

from exporter.bundle.names.common_words import listed
from exporter.bundle.names.names_in_fields import NamesInFields
from exporter.bundle.names.names_in_texts import NamesInTexts

_NAMESPACES = listed("claims.admin-namespaces allocators.reservation-namespaces")
_LABEL_KEYS = listed("workload.labels")
_WORDWISE = listed("resources labels.pod-labels")


class NamesInSettings:
    """Replaces the names in settings."""

    def __init__(self, scanner: NamesInTexts, fields: NamesInFields) -> None:
        self._scanner = scanner
        self._fields = fields

    def all(self, settings: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        """All settings."""
        return {flag: tuple(self._setting(flag, value) for value in values) for flag, values in settings.items()}

    def _setting(self, flag: str, value: str) -> str:
        """A value of a flag."""
        if flag == "node-name":
            return self._fields.name("node", value)
        if flag in _NAMESPACES:
            return ",".join(self._fields.name("namespace", name) for name in value.split(","))
        if flag in _LABEL_KEYS:
            return ",".join(self._fields.label_key(key) for key in value.split(","))
        if flag in _WORDWISE:
            return ",".join(map(self._scanner.wordwise, value.split(",")))
        return self._scanner.strict(value)
