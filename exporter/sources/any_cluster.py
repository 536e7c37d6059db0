"""What knows the nodes of a cluster: their exporters, one by one, or a Prometheus server that scrapes them."""

from typing import Protocol

from exporter.model.cluster import ClusterView
from exporter.sources.source import Source


class ClusterSource(Source, Protocol):
    """A source of many nodes. `begin` asks for what is due; what is known stands in `view` all the time."""

    @property
    def view(self) -> ClusterView:
        """What is known now; nodes whose last word is too old are missing."""
