"""The interface of a source of a cluster's nodes: the node exporters, or a Prometheus server that scrapes them.

Tests: tests/cluster/exporters/test_exporters_source.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from exporter.model.cluster_view import ClusterView
from exporter.sources.source import Source


class ClusterSource(Source, Protocol):
    """A source of many nodes. `begin` asks; `view` has the known nodes at any time."""

    @property
    def view(self) -> ClusterView:
        """The present view. A node whose last answer is too old is missing in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExporterPlace:
    """The place at which a node's exporter answers.

    Attributes:
        url: its paths are added to this URL; "" while it has no address.
        is_named: the place's key is the node's name.
        caution: a reason why it may not answer, as the end of a sentence; "" for none.
    """

    url: str
    is_named: bool = True
    caution: str = ""


class Places(Source, Protocol):
    """A source of the nodes' places."""

    @property
    def looked_for(self) -> str:
        """The objects that the source looks for, in words, with the setting that names them."""

    @property
    def places(self) -> Mapping[str, ExporterPlace] | None:
        """The places by the node's name, or by the address if the name is not known. None: no answer has come yet.

        The same object as long as nothing changed. The last places stay while the source fails.
        """

    def follow(self, on_change: Callable[[], None]) -> None:
        """Call `on_change` whenever the places have changed."""
