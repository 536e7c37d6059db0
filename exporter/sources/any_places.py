"""Where the node exporters of a cluster answer, however that is found out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.sources.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the exporter of a node answers: `url` is what its paths are put after, "" while it has no address.

    `is_named`: the node's name is known from here, and not from what the exporter says of itself. `caution` says why
    it may well not answer (its pod is not ready), as the end of a sentence; "" where it should.
    """

    url: str
    is_named: bool = True
    caution: str = ""


class Places(Source, Protocol):
    """What knows which nodes there are."""

    @property
    def looked_for(self) -> str:
        """What is looked for, in words, with the setting that says so."""

    @property
    def places(self) -> Mapping[str, Place] | None:
        """By the node's name, or by the address where that is not known. None: it is not known which there are.

        The same object as long as nothing changed. What was known stays while it cannot be asked for.
        """

    def follow(self, on_change: Callable[[], None]) -> None:
        """Tell `on_change` whenever the places have changed."""
