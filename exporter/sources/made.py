"""The sources of a configuration, some of which go on with the next one."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

from exporter.sources.source import OnHealth, Source

S = TypeVar("S", bound=Source)


class Made:
    """The sources of one configuration. Those that the configuration before had too, with the same settings, go on.

    A reload therefore loses no connection and nothing that is known of a source that it does not change.
    """

    def __init__(self, on_health: OnHealth, before: "Made | None" = None) -> None:
        self.on_health = on_health
        self._before: Mapping[Hashable, Source] = before.made if before else {}
        self.made: dict[Hashable, Source] = {}

    def get(self, make: Callable[..., S], **settings: Hashable) -> S:
        """The source that `make` made of these settings before, or else makes now."""
        key = (make, *sorted(settings.items()))
        known = self.made.get(key, self._before.get(key))
        # not by its truth: a source that knows nothing yet may be empty
        source: S = make(**settings, on_health=self.on_health) if known is None else known  # type: ignore[assignment] # a key names its type
        self.made[key] = source
        return source

    def settle(self) -> None:
        """The configuration before is history: let go of it."""
        self._before = {}

    def not_in(self, other: "Made") -> Iterable[Source]:
        """Those that the other does not have."""
        return [source for key, source in self.made.items() if key not in other.made]

    def all(self) -> Iterable[Source]:
        """Every one."""
        return tuple(self.made.values())
