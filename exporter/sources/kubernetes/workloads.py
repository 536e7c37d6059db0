"""Workloads of pods: the Kubernetes API is asked for the controllers of controllers, and remembered.

Nothing is asked for twice while it is fresh: a pod's workload for 5 minutes, a failure for 30 s. Pods are known by UID,
so that a pod that was made anew under its old name is another one. The asking goes on in the background and is shared;
a caller waits as long as it likes.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

from exporter.attribution.workloads import (
    MOST_STEPS,
    Workload,
    controller,
    is_object_name,
    is_top,
    read_owners,
    workload,
)
from exporter.errors import SourceError, Unsupported
from exporter.log import log
from exporter.model.pods import OwnerReference, PodInfo
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Bound, absent

MOST_PODS = 4096
KEPT_SECONDS = 300.0
FAILURE_KEPT_SECONDS = 30.0
AT_ONCE = 8

V = TypeVar("V")


class Api(Protocol):
    """What is needed of the Kubernetes API."""

    async def get(self, path: str) -> Mapping[str, Any]:
        """One object, or a SourceError."""

    async def close(self) -> None:
        """End the connections."""


class Remembered(Generic[V]):
    """The most recently used values, each until its time is over. A value whose time is over is still there to show."""

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def put(self, key: Hashable, value: V, seconds: float) -> None:
        """Remember a value for some seconds."""
        self._values[key] = (value, self._clock() + seconds)
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def get(self, key: Hashable) -> tuple[V, bool] | None:
        """A value, and whether it is fresh."""
        found = self._values.get(key)
        if found is None:
            return None
        self._values.move_to_end(key)
        return found[0], self._clock() < found[1]


class Workloads:
    """The workloads of this node's pods."""

    name = "workloads"
    patience_seconds = PATIENCE_SECONDS
    health = absent("a workload that is not known is left out", "the log says why each kind of failure came")

    def __init__(
        self, *, api: Api | None, labels: Sequence[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Without a Kubernetes API, only what pods themselves say is known."""
        self._api = api
        self._labels = tuple(labels)
        self._pods: Remembered[Workload | None] = Remembered(MOST_PODS, clock)
        self._controllers: Remembered[OwnerReference | None] = Remembered(MOST_PODS, clock)
        self._plurals: Remembered[Mapping[str, str]] = Remembered(MOST_PODS, clock)
        self._running: dict[Hashable, asyncio.Task[None]] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._complained: set[str] = set()
        self._waited_for: asyncio.Task[object] | None = None
        self.bounds: Mapping[str, Bound] = {"workloads": Bound(MOST_PODS, lambda: len(self))}

    def __len__(self) -> int:
        return len(self._pods)

    async def close(self) -> None:
        """End what is in flight."""
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._api is not None:
            await self._api.close()

    def of(self, pod: PodInfo) -> Workload | None:
        """What is known now; None where nothing is."""
        found = self._pods.get(_key(pod))
        return found[0] if found else None

    def begin(self, pods: Iterable[PodInfo] = ()) -> Attempt | None:
        """Ask for those that are not known, or no longer fresh. The attempt is over when none is wholly unknown."""
        waiting = []
        for pod in pods:
            key = _key(pod)
            found = self._pods.get(key)
            if found is not None and found[1]:
                continue
            task = self._running.get(key)
            if task is None:
                task = self._running[key] = asyncio.create_task(self._resolve(pod))
                task.add_done_callback(lambda _, key=key: self._running.pop(key, None))  # type: ignore[misc]
            if found is None:
                waiting.append(task)
        if not waiting:
            return None
        self._waited_for = asyncio.create_task(asyncio.wait(waiting))
        return self._waited_for

    async def _resolve(self, pod: PodInfo) -> None:
        key = _key(pod)
        top = controller(pod.owners)
        try:
            for _ in range(MOST_STEPS):
                above = await self._above(pod.namespace, top) if top and not is_top(top) else None
                if above is None:
                    break
                top = above
        except SourceError as error:
            # the nearest one that is known, until it is tried again; none at all where nobody can be asked
            known = workload(pod, top, self._labels) if self._api else None
            self._pods.put(key, known, FAILURE_KEPT_SECONDS)
            self._complain(error)
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the answer
            self._pods.put(key, None, FAILURE_KEPT_SECONDS)
            log(logging.ERROR, "a workload failed by a fault of the exporter", error, pod=pod.name)
        else:
            self._pods.put(key, workload(pod, top, self._labels), KEPT_SECONDS)

    async def _above(self, namespace: str, owner: OwnerReference) -> OwnerReference | None:
        """The controller of an owner.

        Raises:
            SourceError: it cannot be asked for.
        """
        # by all of it: a pod may well name the UID of somebody else's ReplicaSet beside a name of its own
        key = (namespace, owner)
        known = self._controllers.get(key)
        if known is not None and known[1]:
            return known[0]
        if self._api is None:
            raise Unsupported(
                "unimplemented",
                "there is no Kubernetes API to ask for workloads",
                remedy="mount the service account's token (automountServiceAccountToken: true)",
            )
        async with self._places:
            known = self._controllers.get(key)  # somebody else may have asked meanwhile
            if known is not None and known[1]:
                return known[0]
            base = "/api/v1" if owner.api_version == "v1" else _path("apis", *owner.api_version.split("/"))
            plural = await self._plural(base, owner.kind)
            found = await self._api.get(base + _path("namespaces", namespace, plural, owner.name))
        metadata = found.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        # an object that was made anew under its name is not the one that is meant
        is_meant = metadata.get("uid", owner.uid) == owner.uid
        above = controller(read_owners(metadata.get("ownerReferences"))) if is_meant else None
        self._controllers.put(key, above, KEPT_SECONDS)
        return above

    async def _plural(self, base: str, kind: str) -> str:
        """The name of a kind in a path, as the API's own list of what it serves has it."""
        builtin = _PLURALS.get((base, kind))
        if builtin:
            return builtin
        known = self._plurals.get(base)
        if known is None or not known[1]:
            served = await self._api.get(base) if self._api else {}
            plurals = {
                str(found.get("kind")): str(found.get("name"))
                for found in served.get("resources") or ()
                if isinstance(found, Mapping) and is_object_name(str(found.get("name")))
            }
            self._plurals.put(base, plurals, KEPT_SECONDS)
            known = plurals, True
        if kind not in known[0]:
            raise Unsupported(
                "unimplemented",
                f"the Kubernetes API serves no {kind} under {base}",
                remedy="was its definition deleted? The workload is named by what is known below it",
            )
        return known[0][kind]

    def _complain(self, error: SourceError) -> None:
        """Once for each kind of failure; where there is no API, nobody asked for one."""
        if self._api is not None and error.reason not in self._complained:
            self._complained.add(error.reason)
            trouble = error.trouble
            log(
                logging.WARNING,
                "a workload is not known to its top",
                reason=trouble.reason,
                error=trouble.message,
                remedy=trouble.remedy,
            )


def _path(*segments: str) -> str:
    """A path of these segments, whatever is in them."""
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


_PLURALS = {("/apis/apps/v1", "ReplicaSet"): "replicasets", ("/apis/batch/v1", "Job"): "jobs"}


def _key(pod: PodInfo) -> Hashable:
    return pod.uid or (pod.namespace, pod.name)
