"""The pods of this node, whoever tells of them: the kubelet or the Kubernetes API."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

from exporter.model.pods import Bearers, PodInfo
from exporter.model.snapshot import Health
from exporter.sources.pod_table import PodTable
from exporter.sources.source import Attempt, Bound, OnHealth, Source

PODS = "pods"


class Pods(Source, Protocol):
    """A source of pods."""

    @property
    def pods(self) -> Mapping[tuple[str, str], PodInfo]:
        """By namespace and name; the same object as long as nothing changed."""

    @property
    def bearers(self) -> Bearers:
        """Who bears a name, and who did; the same object as long as nothing changed."""


class NoPods:
    """In place of a source of pods where none is there."""

    name = PODS
    patience_seconds = 0.0
    pods: Mapping[tuple[str, str], PodInfo] = MappingProxyType({})
    bearers: Bearers = MappingProxyType({})

    def __init__(self, health: Health, on_health: OnHealth) -> None:
        """`health` says why; where somebody misses the pods (it is down), `on_health` hears of it."""
        self.health = health
        self.bounds: Mapping[str, Bound] = PodTable().bounds(lambda: 0.0)
        self._on_health = on_health

    def begin(self) -> Attempt | None:
        """Nothing is there to be asked."""
        if self.health.up is False:
            self._on_health(self.name, self.health)
        return None

    async def close(self) -> None:
        """Nothing is in flight."""
