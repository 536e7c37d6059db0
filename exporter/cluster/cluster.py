"""The cluster role: what is known of all nodes is kept by a source; a look takes it as it is, and waits for nobody.

Only the very first looks wait, for the first answers of the nodes, and no longer than whoever asks.
"""

import asyncio
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from exporter.cluster.lasting import Lasting
from exporter.cluster.outputs.look import ClusterLook
from exporter.cluster.outputs.table import OUTPUTS
from exporter.model.cluster import ClusterView
from exporter.outputs.output import LOOK_AT_NODE, Need, Output
from exporter.sources.any_cluster import ClusterSource
from exporter.sources.made import Made
from exporter.sources.source import Source, is_absent

if TYPE_CHECKING:
    from exporter.sources.kubernetes.scaled_objects import ScaledObjects


class Cluster:
    """Has the nodes asked with every beat of the pulse, and answers from what is kept."""

    outputs: Sequence[Output[Any]] = OUTPUTS

    def __init__(
        self,
        *,
        source: ClusterSource,
        others: Sequence[Source],
        scaled_objects: "ScaledObjects | None" = None,
        made: Made,
        interval_seconds: float,
        patience_seconds: float,
        lasting: Lasting,
    ) -> None:
        """`source` knows the nodes; `others` are sources of its own whose health is shown, too. `made` closes them.

        `scaled_objects` say what KEDA's ScaledObjects scale, where KEDA may ask and the Kubernetes API can be asked.
        `patience_seconds` is how long the first looks wait where nobody says how long they may.
        """
        self.lasting = lasting
        self.telemetry, self.instance = lasting.telemetry, lasting.instance
        self.made = made
        self.pulse_seconds: float | None = interval_seconds
        self._source = source
        self.scaled_objects = scaled_objects
        self._shown = (source, *others, *([scaled_objects] if scaled_objects else ()))
        self._patience_seconds = patience_seconds
        for each in self._shown:
            for of, (most, used) in each.bounds.items():
                self.telemetry.bound(of, most, used)

    def looked(self, seen: ClusterView | None, **rest: Any) -> ClusterLook:  # noqa: ANN401 - the fields of AnyLook
        """A look at what was seen, or at what is known anyway."""
        return ClusterLook(
            view=self._source.view if seen is None else seen,
            health={
                source.name: source.health
                for source in self._shown
                if source.health.up is not None and not is_absent(source.health)
            },
            at_seconds=time.time(),
            **rest,
        )

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> ClusterView:  # noqa: ARG002 - there is one look for all
        """What is known now; the first time after the first answers, or after `wait_seconds`."""
        if not self.lasting.has_heard(self._source):
            await self._hear(self._patience_seconds if wait_seconds is None else wait_seconds)
        return self._source.view

    async def pulse(self) -> None:
        """Have every node asked that is not being asked."""
        await self._hear(None)

    async def why_not_ready(self) -> str:
        """The reason, or "" once the nodes are known and each was asked, and from then on."""
        self._note()
        return self.lasting.not_ready

    async def give_way(self, successor: "Cluster") -> None:
        """Close what the successor does not go on with. A look in flight ends with what is known."""
        await asyncio.gather(*(source.close() for source in self.made.not_in(successor.made)))

    async def close(self) -> None:
        """End what is in flight."""
        await asyncio.gather(*(source.close() for source in self.made.all()))

    async def _hear(self, wait_seconds: float | None) -> None:
        attempt = self._source.begin()
        if attempt is not None:
            await asyncio.wait({attempt}, timeout=wait_seconds)
        if attempt is None or attempt.done():
            self.lasting.heard = self._source
        self._note()

    def _note(self) -> None:
        if not self.lasting.not_ready:
            return
        trouble = self._source.view.trouble
        if trouble:
            self.lasting.not_ready = f"not ready: it is not known which nodes there are: {trouble}"
        elif not self.lasting.has_heard(self._source):
            self.lasting.not_ready = "not ready: the nodes are being asked for the first time"
        else:
            self.lasting.not_ready = ""
