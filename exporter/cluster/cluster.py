"""The cluster role: a source keeps the last answers of all nodes, and a look takes them without waiting.

Only the first looks wait, for the first answers, and no longer than their client waits.

Tests: tests/cluster/test_role.py.
"""

import asyncio
import secrets
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exporter.cluster.outputs.cluster_outputs import OUTPUTS
from exporter.cluster.outputs.look import ClusterLook
from exporter.cluster.seen_workloads import MOST_WORKLOADS, SeenWorkloads
from exporter.model.cluster_view import ClusterView
from exporter.outputs.output import LOOK_AT_NODE, Need, Output
from exporter.sources.cluster_source import ClusterSource
from exporter.sources.source import Source, SourceCache, is_absent
from exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from exporter.cluster.scaled_objects import ScaledObjects


class ClusterHandover:
    """The state that outlives a reload: counters, sources, and whether the role has been ready.

    Attributes:
        instance: the name of the process towards upstreams.
        not_ready: the reason why the role has not been ready so far. Once it has been, this stays "".
        heard: the source whose first answers have come, or failed.
        workloads: the workloads that autoscalers have asked about.
    """

    def __init__(self) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.not_ready = "not ready: no node has been asked yet"
        self.cache: SourceCache | None = None
        self.heard: Source | None = None
        self.workloads = SeenWorkloads()


@dataclass(eq=False, kw_only=True)
class Cluster:
    """The cluster role. It asks all nodes with every beat of the pulse, and answers from their last answers.

    Attributes:
        source: the source that knows the nodes.
        others: the sources that `source` uses, whose health is shown, too.
        scaled_objects: the targets of KEDA's ScaledObjects; None unless KEDA may ask and there is a Kubernetes API.
        cache: all these sources. It closes them.
        patience_seconds: the time that a first look waits if its client names none.
    """

    source: ClusterSource
    others: Sequence[Source]
    scaled_objects: "ScaledObjects | None" = None
    cache: SourceCache
    pulse_seconds: float | None
    patience_seconds: float
    handover: ClusterHandover
    outputs: Sequence[Output[Any]] = OUTPUTS

    def __post_init__(self) -> None:
        self.telemetry = self.handover.telemetry
        self.instance = self.handover.instance
        self._shown = (self.source, *self.others, *([self.scaled_objects] if self.scaled_objects else ()))
        for shown_node in self._shown:
            for of, (most, used) in shown_node.bounds.items():
                self.telemetry.bound(of, most, used)
        self.telemetry.bound("scaled_workloads", MOST_WORKLOADS, self.handover.workloads.__len__)

    def looked(self, seen: ClusterView | None, **rest: Any) -> ClusterLook:  # noqa: ANN401 - the fields of AnyLook
        """A look at `seen`, or at the last answers if that is None."""
        return ClusterLook(
            view=self.source.view if seen is None else seen,
            health={
                source.name: source.health
                for source in self._shown
                if source.health.up is not None and not is_absent(source.health)
            },
            at_seconds=time.time(),
            workloads=self.handover.workloads,
            **rest,
        )

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> ClusterView:  # noqa: ARG002 - there is one look for all
        """Return the last answers. Until the first have come, wait for them, for at most `wait_seconds`."""
        if self.handover.heard is not self.source:
            await self._hear(self.patience_seconds if wait_seconds is None else wait_seconds)
        return self.source.view

    async def pulse(self) -> None:
        """Ask every node that is not being asked already."""
        await self._hear(None)

    async def why_not_ready(self) -> str:
        """The reason; "" for good as soon as the nodes are known and every node has been asked."""
        self._note()
        return self.handover.not_ready

    async def give_way(self, successor: "Cluster") -> None:
        """Close the sources that the successor does not use. A look in flight ends with the last answers."""
        await asyncio.gather(*(source.close() for source in self.cache.not_in(successor.cache)))

    async def close(self) -> None:
        """Close all sources, and end their requests in flight."""
        await asyncio.gather(*(source.close() for source in self.cache.sources.values()))

    async def _hear(self, wait_seconds: float | None) -> None:
        attempt = self.source.begin()
        if attempt is not None:
            await asyncio.wait({attempt}, timeout=wait_seconds)
        if attempt is None or attempt.done():
            self.handover.heard = self.source
        self._note()

    def _note(self) -> None:
        if not self.handover.not_ready:
            return
        trouble = self.source.view.trouble
        if trouble:
            self.handover.not_ready = f"not ready: it is not known which nodes there are: {trouble}"
        elif self.handover.heard is not self.source:
            self.handover.not_ready = "not ready: the nodes are being asked for the first time"
        else:
            self.handover.not_ready = ""
