"""What a node's kubelet and API server say of a `Life`, given to the real sources in the place of their sockets.

Time is the event loop's (virtual_time.py), so nothing here waits for a socket or a thread. Answers and events take some
milliseconds, in which the world may change. A watch is told of a change after up to `LAG_SECONDS`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import grpc.aio

from exporter._gen import pods_pb2 as messages
from exporter.errors import Unavailable
from exporter.simulator import pods_api
from exporter.simulator.kubelet import list_response
from exporter.simulator.kubernetes import pod_object, versioned
from exporter.simulator.parts import Pod
from exporter.sources.kubernetes.api import Forgotten
from tests.allocated.life import Life

LAG_SECONDS = 0.05
ANSWER_SECONDS = 0.02
# the API server ends a watch so often
_WATCH_SECONDS = 240.0


class Kubelet:
    """The kubelet: it goes, and comes back with an empty List at first (`restart`).

    `socket` is the file by which the exporter tells one kubelet from another.
    """

    def __init__(self, life: Life, socket: Path, chance: random.Random) -> None:
        self._life, self._socket, self._chance = life, socket, chance
        self.is_up = False
        self.knows_pods = True
        self.began_at = 0.0
        self._body: tuple[Sequence[Pod], bytes] = ((), b"")
        self._start()

    def stop(self) -> None:
        """Go down."""
        self.is_up = False
        self._life.wake()

    async def start(self, *, empty_seconds: float) -> None:
        """Come back. For `empty_seconds` it lists no pod."""
        self.knows_pods = False
        self._start()
        await asyncio.sleep(empty_seconds)
        self.knows_pods = True
        self._life.kubelet_learns()

    def _start(self) -> None:
        beside = self._socket.with_suffix(".new")
        beside.touch()
        beside.replace(self._socket)
        self.is_up = True
        self.began_at = asyncio.get_running_loop().time()
        self._life.wake()

    def wall_clock(self) -> float:
        """The time by the clock of the socket's file."""
        return self._socket.stat().st_ctime + asyncio.get_running_loop().time() - self.began_at

    @property
    def pods(self) -> Sequence[Pod]:
        """The pods that it knows, those that have ended included."""
        return self._life.of_kubelet if self.knows_pods else ()

    async def call(self, *_: str, **__: str) -> bytes:
        """Answer List, as PodResourcesClient does."""
        await asyncio.sleep(self._chance.uniform(0.0, ANSWER_SECONDS))
        if not self.is_up:
            raise Unavailable("refused", "nobody listens", remedy="")
        pods = self._life.pods if self.knows_pods else ()
        if self._body[0] is not pods:
            self._body = pods, list_response([pod for pod in pods if pod.is_acknowledged and not pod.has_ended])
        body = self._body[1]
        await asyncio.sleep(self._chance.uniform(0.0, ANSWER_SECONDS))
        return body

    async def close(self) -> None:
        """Close nothing."""


class Feed:
    """What a watch of pods is told.

    `down_at` is the moment since when no watch is open, `synced_at` the moment since when the exporter has all from the
    open one; both are infinite if it is otherwise.
    """

    def __init__(self, life: Life, chance: random.Random) -> None:
        self.life, self.chance = life, chance
        self.is_reachable = True
        self.breaks = asyncio.Event()
        self.down_at = 0.0
        self.synced_at = float("inf")

    def cut(self) -> None:
        """Break the open watch, and refuse another one until `mend`."""
        self.is_reachable = False
        self.note_down()
        self.breaks.set()
        self.breaks = asyncio.Event()

    def mend(self) -> None:
        """Take watches again."""
        self.is_reachable = True

    def note_down(self) -> None:
        self.down_at = min(self.down_at, self.life.now)
        self.synced_at = float("inf")

    def note_synced(self) -> None:
        self.synced_at = self.life.now
        self.down_at = float("inf")

    async def change(self, seconds: float = float("inf")) -> bool:
        """Wait for a change of the world, or so many seconds. Returns whether the watch is still open."""
        broken = asyncio.create_task(self.breaks.wait())
        changed = asyncio.create_task(self.life.changes())
        try:
            timeout = None if seconds == float("inf") else max(0.0, seconds)
            await asyncio.wait((broken, changed), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not broken.done():
                await asyncio.sleep(self.chance.uniform(0.0, LAG_SECONDS))
            return not broken.done()
        finally:
            broken.cancel()
            changed.cancel()


class PodsApiFeed(Feed):
    """The kubelet's Pods API, in the place of a grpc channel."""

    def __init__(self, life: Life, chance: random.Random, kubelet: Kubelet) -> None:
        super().__init__(life, chance)
        self._kubelet = kubelet

    def unary_stream(self, *_: Any, **__: Any) -> Callable[[bytes], "PodsApiFeed"]:
        return lambda _: self

    def cancel(self) -> None:
        """End nothing: whoever reads no longer is told nothing."""

    async def close(self) -> None:
        """Close nothing."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.sleep(0.001)
        began_at = self._kubelet.began_at
        # an AioRpcError needs its metadata
        gone = grpc.aio.AioRpcError(
            grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "Socket closed"
        )
        if not (self.is_reachable and self._kubelet.is_up):
            raise gone
        knew_pods = self._kubelet.knows_pods
        stream = pods_api.Stream(1.5)
        is_first = True
        is_open = True
        while is_open and self._kubelet.is_up and self._kubelet.began_at == began_at:
            pods = self._kubelet.pods
            for pause_seconds, event in stream.events(self.chance.sample(pods, len(pods))):
                await asyncio.sleep(pause_seconds)
                yield event
            if is_first:
                is_first = False
                yield messages.WatchPodsEvent(type=messages.INITIAL_SYNC_COMPLETE).SerializeToString()
            if not knew_pods and pods:
                knew_pods = True
            if knew_pods and self.synced_at == float("inf"):
                self.note_synced()
            is_open = await self.change() and self.is_reachable
        self.note_down()
        raise gone


class ApiFeed(Feed):
    """The Kubernetes API's pods of the node, in the place of KubernetesApi.

    `forgets`: the next watch is answered with 410 Gone, so that the exporter lists anew.
    """

    meanwhile = "nothing"

    def __init__(self, life: Life, chance: random.Random) -> None:
        super().__init__(life, chance)
        self.forgets = False
        self._version = 1
        self._objects: dict[str, tuple[Pod, int, dict[str, Any]]] = {}
        self._events: list[tuple[int, str, Mapping[str, Any]]] = []

    def _look(self) -> None:
        """Give each pod that is new, changed or gone a version, and note the event."""
        pods = {pod.uid: pod for pod in self.life.of_api}
        for uid, pod in pods.items():
            before = self._objects.get(uid)
            if before is None or before[0] != pod:
                self._version += 1
                item = versioned(pod_object(pod, "gpu-node-1"), self._version)
                self._objects[uid] = (pod, self._version, item)
                self._events.append((self._version, "MODIFIED" if before else "ADDED", item))
        for uid in self._objects.keys() - pods.keys():
            self._version += 1
            _, _, item = self._objects.pop(uid)
            self._events.append(
                (
                    self._version,
                    "DELETED",
                    {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}},
                )
            )

    def _refuse(self) -> None:
        if not self.is_reachable:
            raise Unavailable("refused", "nobody listens", remedy="")

    async def list(
        self, _: str, __: Mapping[str, str], read: Callable[[Any], Any], **___: Any
    ) -> tuple[Sequence[Any], str]:
        await asyncio.sleep(self.chance.uniform(0.0, ANSWER_SECONDS))
        self._refuse()
        self._look()
        version = self._version
        items = [read(item) for _, _, item in self._objects.values()]
        await asyncio.sleep(self.chance.uniform(0.0, ANSWER_SECONDS))
        self._refuse()
        return items, str(version)

    async def lines(
        self, _: str, parameters: Mapping[str, str], on_open: Callable[[], None], **__: Any
    ) -> AsyncIterator[Mapping[str, Any]]:
        await asyncio.sleep(self.chance.uniform(0.0, ANSWER_SECONDS))
        self._refuse()
        if self.forgets:
            self.forgets = False
            raise Forgotten
        since = int(parameters["resourceVersion"])
        ends_at = self.life.now + _WATCH_SECONDS
        on_open()
        is_open = True
        while is_open and self.life.now < ends_at:
            self._look()
            for version, kind, item in self._after(since):
                since = version
                yield {"type": kind, "object": item}
            if self.synced_at == float("inf"):
                self.note_synced()
            is_open = await self.change(ends_at - self.life.now) and self.is_reachable
        if not is_open:
            raise Unavailable("unreachable", "the connection broke", remedy="")

    def _after(self, version: int) -> Sequence[tuple[int, str, Mapping[str, Any]]]:
        first = len(self._events)
        while first and self._events[first - 1][0] > version:
            first -= 1
        return self._events[first:]

    async def close(self) -> None:
        """Close nothing."""


def by_this_clock(module: Any) -> Any:
    """`time` for a module that asks for the monotonic time: that of the event loop."""
    return SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
