"""Sources of a cluster's nodes: their exporters, one by one, or a Prometheus server that scrapes them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.model.cluster_view import ClusterView
from exporter.sources.source import Source


class ClusterSource(Source, Protocol):
    """A source of many nodes. `begin` asks for what is due; what is known stands in `view` all the time."""

    @property
    def view(self) -> ClusterView:
        """What is known now; nodes whose last word is too old are missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a node's exporter answers: `url` is what its paths are put after, "" while it has no address.

    `is_named`: its node's name is known from here. `caution`: why it may not answer, as the end of a sentence, or "".
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
