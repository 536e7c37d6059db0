"""The handover: the object that outlives a reload. A node hands it to the node of the next configuration.

Tests: tests/node/test_accounting.py.
"""

import secrets
from dataclasses import dataclass
from typing import TypeVar

from exporter.model.snapshot import KUBELET, Snapshot
from exporter.sources.source import SourceCache
from exporter.telemetry import Telemetry

T = TypeVar("T")


@dataclass
class WantedStreams:
    """The streams that an output, a claim or an allocator's token needed once; they stay open.

    `maybe_allocators`: ids may be tokens, which only their pods say.
    """

    workloads: bool = False
    allocators: bool = False
    maybe_allocators: bool = False
    slices: bool = False


class NodeHandover:
    """What the parts of a node keep for those of the next: sources in `cache`, and an object of each kind.

    `instance` names the process towards upstreams. `not_ready` says why there has been no page yet; "" from the first
    page on.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.not_ready = "no page has been asked for yet"
        self.cache: SourceCache | None = None
        self._kept: dict[type, object] = {}

    def take(self, cache: SourceCache) -> None:
        """Keep the sources of the new node, which is complete: from here on all that is kept is its own."""
        cache.settle()
        self.cache = cache

    def the(self, kind: type[T]) -> T:
        """The one object of this kind that parts keep over reloads. It is made when it is asked for first."""
        kept = self._kept.get(kind)
        if not isinstance(kept, kind):
            kept = self._kept[kind] = kind()
        return kept

    def note_readiness(self, snapshot: Snapshot) -> None:
        """Note whether there was a page with the kubelet's answer, or why not."""
        down = (
            f"{name}: {snapshot.health[name].trouble}"
            for name in (KUBELET, *snapshot.page_sources)
            if not snapshot.health[name].up
        )
        is_ready = snapshot.joined is not None and snapshot.health[KUBELET].up
        self.not_ready = "" if is_ready else "not ready: " + "; ".join(down)
