"""The workloads of pods: the Kubernetes API is asked for the controllers of controllers, and answers are kept.

An answer is fresh for 5 minutes, a failure for 30 s. Answers are kept by the pod's UID, since a new pod may have an old
name. Questions run in the background, and callers share them; a caller waits as long as it likes.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import quote

from exporter import log
from exporter.errors import SourceError, Unsupported
from exporter.lenient import mapping, mappings
from exporter.model.pods import OwnerReference, PodInfo
from exporter.ownership.workloads import MOST_STEPS, Workload, controller, is_object_name, is_top, read_owners, workload
from exporter.pulse import end_tasks
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Bound, Bounds, Clock, absent

if TYPE_CHECKING:
    from exporter.sources.kubernetes.api import KubernetesApi

MOST_PODS = 4096
KEPT_SECONDS = 300.0
FAILURE_KEPT_SECONDS = 30.0
AT_ONCE = 8

V = TypeVar("V")


class ExpiringCache(Generic[V]):
    """A cache of the most recently used values. A value that has expired stays, so that it can be shown."""

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._values: OrderedDict[Hashable, tuple[V, float]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[V]] = {}

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._values

    def put(self, key: Hashable, value: V, seconds: float) -> None:
        """Keep a value, which is fresh for some seconds."""
        self._values[key] = (value, self._clock() + seconds)
        self._values.move_to_end(key)
        while len(self._values) > self._most:
            self._values.popitem(last=False)

    def get(self, key: Hashable) -> V | None:
        """The value, fresh or expired; None without a value."""
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def is_fresh(self, key: Hashable) -> bool:
        """Whether there is a value that has not expired."""
        return key in self._values and self._clock() < self._values[key][1]

    def ask(self, key: Hashable, question: Callable[[], Coroutine[Any, Any, V]]) -> "asyncio.Task[V]":
        """The question about this key that is in flight, or else `question`, begun now. Callers share a question."""
        task = self._asked.get(key)
        if task is None:
            task = self._asked[key] = asyncio.create_task(question())
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        return task

    async def close(self) -> None:
        """End the questions in flight."""
        await end_tasks(*self._asked.values())


class Workloads:
    """The workloads of this node's pods."""

    name = "workloads"
    patience_seconds = PATIENCE_SECONDS
    health = absent("a workload that is not known is left out", "the log says why each kind of failure came")

    def __init__(
        self, *, api: "KubernetesApi | None", labels: Sequence[str] = (), clock: Clock = time.monotonic
    ) -> None:
        """`api` None: only the pods' own facts count. `labels` are the labels of a pod that may name its workload."""
        self._api = api
        self._labels = tuple(labels)
        self._pods: ExpiringCache[Workload | None] = ExpiringCache(MOST_PODS, clock)
        self._controllers: ExpiringCache[OwnerReference | None] = ExpiringCache(MOST_PODS, clock)
        self._plurals: ExpiringCache[Mapping[str, str]] = ExpiringCache(MOST_PODS, clock)
        self._places = asyncio.Semaphore(AT_ONCE)
        self._complained: set[str] = set()
        self._waited_for: asyncio.Task[object] | None = None
        self.bounds: Bounds = {"workloads": Bound(MOST_PODS, lambda: len(self))}

    def __len__(self) -> int:
        return len(self._pods)

    async def close(self) -> None:
        """End the questions in flight, and close the connections."""
        await self._pods.close()
        if self._api is not None:
            await self._api.close()

    def of(self, pod: PodInfo) -> Workload | None:
        """The pod's workload as far as it is known now; None if nothing is known."""
        return self._pods.get(_key(pod))

    def begin(self, pods: Iterable[PodInfo] = ()) -> Attempt | None:
        """Ask for the workloads of pods whose answer is not fresh. The attempt ends when every pod has an answer."""
        waiting = []
        for pod in pods:
            key = _key(pod)
            if not self._pods.is_fresh(key):
                task = self._pods.ask(key, partial(self._resolve, pod))
                if key not in self._pods:
                    waiting.append(task)
        if not waiting:
            return None
        self._waited_for = asyncio.create_task(asyncio.wait(waiting))
        return self._waited_for

    async def _resolve(self, pod: PodInfo) -> Workload | None:
        """The workload of a pod, which is kept. If the API fails, the nearest controller so far counts for a while."""
        top = controller(pod.owners)
        workload_now = None
        kept_seconds = FAILURE_KEPT_SECONDS
        try:
            for _ in range(MOST_STEPS):
                above = await self._above(pod.namespace, top) if top and not is_top(top) else None
                if above is None:
                    break
                top = above
        except SourceError as error:
            # until the next try the nearest known controller counts; without an API none does
            workload_now = workload(pod, top, self._labels) if self._api else None
            self._complain(error)
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the answer
            log.error("a workload failed by a fault of the exporter", error, pod=pod.name)
        else:
            workload_now = workload(pod, top, self._labels)
            kept_seconds = KEPT_SECONDS
        self._pods.put(_key(pod), workload_now, kept_seconds)
        return workload_now

    async def _above(self, namespace: str, owner: OwnerReference) -> OwnerReference | None:
        """The controller of an owner; None if it has none. Raises SourceError: the API cannot be asked for it."""
        # the whole reference is the key: a pod may name another owner's UID beside any name
        key = (namespace, owner)
        if self._controllers.is_fresh(key):
            return self._controllers.get(key)
        if self._api is None:
            remedy = "mount the service account's token (automountServiceAccountToken: true)"
            raise Unsupported("there is no Kubernetes API to ask for workloads", remedy=remedy)
        async with self._places:
            if self._controllers.is_fresh(key):  # another question has brought the answer meanwhile
                return self._controllers.get(key)
            base = "/api/v1" if owner.api_version == "v1" else _path("apis", *owner.api_version.split("/"))
            plural = await self._plural(base, owner.kind)
            item = await self._api.get(base + _path("namespaces", namespace, plural, owner.name))
        metadata = mapping(item, "metadata")
        # a new object may have the same name
        is_meant = metadata.get("uid", owner.uid) == owner.uid
        above = controller(read_owners(metadata.get("ownerReferences"))) if is_meant else None
        self._controllers.put(key, above, KEPT_SECONDS)
        return above

    async def _plural(self, base: str, kind: str) -> str:
        """The name of a kind in a path, by the API's own list of the kinds that it serves."""
        if builtin := _PLURALS.get((base, kind)):
            return builtin
        if not self._plurals.is_fresh(base):
            served = await self._api.get(base) if self._api else {}
            plurals = {
                str(resource.get("kind")): str(resource.get("name"))
                for resource in mappings(served, "resources", 10_000)
                if is_object_name(str(resource.get("name")))
            }
            self._plurals.put(base, plurals, KEPT_SECONDS)
        plural = (self._plurals.get(base) or {}).get(kind)
        if plural is None:
            remedy = "was its definition deleted? The workload is named by what is known below it"
            raise Unsupported(f"the Kubernetes API serves no {kind} under {base}", remedy=remedy)
        return plural

    def _complain(self, error: SourceError) -> None:
        """Log each kind of failure once; none if there is no API to ask."""
        if self._api is not None and error.reason not in self._complained:
            self._complained.add(error.reason)
            why = error.trouble
            log.warning("a workload is not known to its top", reason=why.reason, error=why.message, remedy=why.remedy)


def _path(*segments: str) -> str:
    return "".join(f"/{quote(segment, safe='')}" for segment in segments)


_PLURALS = {("/apis/apps/v1", "ReplicaSet"): "replicasets", ("/apis/batch/v1", "Job"): "jobs"}


def _key(pod: PodInfo) -> Hashable:
    return pod.uid or (pod.namespace, pod.name)
