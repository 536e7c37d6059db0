"""The kubelet's pod-resources socket: the containers and the devices that they hold.

One grpc channel for the life of the program (socket.py). It asks v1 first, and v1alpha1 if v1 is UNIMPLEMENTED. It
reads an answer (pod_resources.py) only if it differs from the last answer, which outlives failures
(ownership/retention.py).

The kubelet counts as another one if the socket file is another file (device, inode, change time: inode numbers recur)
or if the connection was lost. A kubelet creates the file when it starts, so the file's change time is its start.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import ClassVar

from exporter import log
from exporter.config.node_settings import KubeletSettings
from exporter.errors import SourceError, Trouble, Unavailable, Unsupported
from exporter.model.devices import NO_PLACES, NONE_ALLOCATABLE, Allocatable, Assignment, CdiPlaces, PodResources
from exporter.model.pods import PodName
from exporter.model.snapshot import KUBELET, Health
from exporter.ownership.retention import (
    STALE_WHILE_REFUSED_SECONDS,
    Read,
    Retained,
    answered,
    failed,
    read_by_built_in_rules,
    settled,
)
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS, Fingerprint, ListReader, fingerprint
from exporter.sources.kubelet.socket import SLOW_KUBELET, PodResourcesClient
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import PATIENCE_SECONDS, AskedSource, Bound, Bounds, Clock, OnHealth

NAME = KUBELET
_STALE_OTHERWISE_SECONDS = 60.0
_API_SERVER = "can the node reach the API server? The kubelet's log on the node says so; it asks again by itself"
_NO_PODS = Trouble(
    "no_pods",
    "the kubelet lists no pod: it has just started, or cannot reach the API server, or the node has none",
    _API_SERVER,
)
_OWNERS_ARE_KEPT = Trouble(
    "no_pods",
    "the kubelet lists no pod, static ones aside: it has just started, or cannot reach the API server; the last known"
    " owners are kept",
    _API_SERVER,
)
LIST_METHODS = {"v1": "/v1.PodResourcesLister/List", "v1alpha1": "/v1alpha1.PodResourcesLister/List"}


@dataclass(slots=True, eq=False)
class KeptAssignments:
    """The assignments in force, and the facts that identify the kubelet that gave them. They may outlive a source.

    `answered_on` is the socket file of the last answer: device, inode and change time. `asked_at_seconds` is when its
    call began, by the source's clock. `read` gives the device that an assignment refers to. For `allocatable` and
    `offered` see allocatable.py.
    """

    retained: Retained = field(default_factory=Retained)
    answered_on: tuple[int, int, int] | None = None
    connection_lost: bool = False
    asked_at_seconds: float | None = None
    read: Read = read_by_built_in_rules
    allocatable: Allocatable = field(default_factory=lambda: NONE_ALLOCATABLE)
    offered: Allocatable | None = None


class KubeletSource(AskedSource):
    """The assignments of the kubelet's last answer, read when asked for and kept while the kubelet is away."""

    if_slow: ClassVar[str] = SLOW_KUBELET

    def __init__(
        self,
        *,
        settings: KubeletSettings,
        resources: Sequence[str],
        on_health: OnHealth,
        kept: KeptAssignments | None = None,
        claims: bool = False,
        node: str = "",
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        """Without --kubelet.max-stale: 10 minutes while the connection is refused, 1 minute for any other failure.

        `kept` has the assignments in force before, if another source has read this socket. Without `claims`, devices of
        DRA are left `outside`. Static pods' names end with `node`. `wall_clock` is the clock of files' times.
        """
        super().__init__(NAME, on_health)
        self._settings = settings
        self._reader = ListReader(resources, claims=claims)
        self._kept = kept or KeptAssignments()
        self._claims = claims
        self._node = node
        self._clock = clock
        self._wall_clock = wall_clock
        self._flight = SingleFlight(self._refresh)
        self.wait = self._flight.wait
        self._version = "v1"
        self._last: tuple[str, Fingerprint, PodResources] | None = None
        self._places = NO_PLACES
        self.outside: tuple[Assignment, ...] = ()  # the last answer's, of resources that are left out
        self._attempted_at: float | None = None
        self._client = PodResourcesClient(settings.socket, settings.timeout_seconds)
        self.bounds: Bounds = {"assignments": Bound(MOST_ASSIGNMENTS, lambda: len(self.assignments))}

    async def close(self) -> None:
        """End the call in flight and the channel."""
        await self._flight.close()
        await self._client.close()

    @property
    def patience_seconds(self) -> float | None:
        """Once owners are known, a look does not wait long for newer ones."""
        return PATIENCE_SECONDS if self.assignments else None

    @property
    def asked_at_seconds(self) -> float | None:
        """The time at which the call of the last answer began, by the source's clock."""
        return self._kept.asked_at_seconds

    @property
    def assignments(self) -> frozenset[Assignment]:
        """The assignments in force now; the same object as long as nothing changed."""
        return self._kept.retained.assignments

    @property
    def listed(self) -> frozenset[PodName]:
        """The pods of the answer in force, with or without devices; the same object as long as nothing changed."""
        return self._kept.retained.listed

    @property
    def unlisted(self) -> frozenset[PodName]:
        """Namespace and name of the pods whose owners are in force only by an earlier answer.

        The kubelet has not listed them since it was lost, or does not answer now. Another pod may have taken such a
        name meanwhile, so other sources may mean that pod by it.
        """
        held = self.assignments if self.health.up is False else self._kept.retained.unlisted
        if not held:
            return frozenset()
        return frozenset(assignment.owner.pod_key for assignment in held)

    def settle(self, cdi_names: AbstractSet[str]) -> None:
        """Take in that the devices of these CDI names are known now, which were not when the kubelet answered."""
        self._kept.retained = settled(self._kept.retained, self._kept.read, cdi_names)

    @property
    def version(self) -> str:
        """The interface that the kubelet answered last, v1 or v1alpha1; "" before the first answer."""
        return self._last[0] if self._last else ""

    @property
    def age_seconds(self) -> float | None:
        """The age of the answer that is in force; None before the first answer."""
        known_at = self._kept.retained.known_at
        return None if known_at is None else max(0.0, self._clock() - known_at)

    def follow(self, places: CdiPlaces) -> None:
        """Follow claims of any driver whose CDI specs name GPUs of NVIDIA's. `places` are the places in all specs."""
        if places is self._places:
            return
        self._places = places
        if self._last is not None and self.health.up and any(assignment.claim for assignment in self.outside):
            self._note_answer(self._last[2], self._kept.answered_on)

    def begin(self) -> asyncio.Task[Health] | None:
        """The call in flight, or a new one; None while the last answer is younger than `max_age_seconds`.

        Nor is a failed attempt repeated at once, so that a crowd of scrapes does not become a crowd of calls. The task
        raises nothing if the kubelet fails: its result is the call's health, and `assignments` are those in force.
        """
        since = None if self._attempted_at is None else self._clock() - self._attempted_at
        fresh_for = self._settings.max_age_seconds if self.health.up else self._settings.max_age_seconds / 2
        return self._flight.begin() if since is None or since >= fresh_for else None

    async def _refresh(self) -> Health:
        """Ask the kubelet once, and keep its answer or its failure. Returns the health after that."""
        started = self._clock()
        identity = self._socket_identity()
        try:
            answer = await self._list()
        except SourceError as error:
            self._note_failure(error, started)
        else:
            self._note_answer(answer, self._socket_identity())
            # The identity from before the call counts: the next call notices a socket that was replaced during this
            # one.
            self._kept.answered_on = identity
            self._kept.connection_lost = False
            self._kept.asked_at_seconds = started
            self._set_health(started, None)
        self._attempted_at = self._clock()
        return self.health

    def _note_answer(self, answer: PodResources, identity: tuple[int, int, int] | None) -> None:
        """Merge an answer with the assignments in force. `identity` is that of the socket which gave the answer."""
        before = self._kept.retained
        gpus = frozenset(
            assignment
            for assignment in answer.outside
            if assignment in before.assignments or self._names_gpu(assignment)
        )
        if gpus and self._claims:
            outside = tuple(assignment for assignment in answer.outside if assignment not in gpus)
            answer = replace(answer, assignments=answer.assignments | gpus, outside=outside)
        self.outside = answer.outside
        max_stale = self._max_unlisted_seconds
        self._kept.retained = answered(
            before,
            answer,
            now=self._clock(),
            reconnected=self._kept.connection_lost or identity != self._kept.answered_on,
            up_for_seconds=self._wall_clock() - identity[2] / 1e9 if identity else 0.0,
            max_stale_seconds=max_stale,
            node=self._node,
            read=self._kept.read,
        )
        held = len(before.assignments)
        if held and not self._kept.retained.assignments and not self._kept.retained.lists_pods:
            log.warning("owners dropped", source=NAME, assignments=held, older_than_seconds=max_stale)

    def _names_gpu(self, assignment: Assignment) -> bool:
        names = assignment.claim.cdi_names if assignment.claim else ()
        return any((place := self._places.get(name)) is not None and place.minor for name in names)

    def _note_failure(self, error: SourceError, started: float) -> None:
        """Keep the assignments in force, unless they are too old for this error. The call began at `started`."""
        if isinstance(error, Unavailable) and error.reason != "rate_limited":
            self._kept.connection_lost = True
            self._version = "v1"  # the kubelet that comes back may be newer
        max_stale = self._settings.max_stale_seconds
        if max_stale is None:
            max_stale = STALE_WHILE_REFUSED_SECONDS if error.reason == "refused" else _STALE_OTHERWISE_SECONDS
        held = len(self._kept.retained.assignments)
        self._kept.retained = failed(
            self._kept.retained,
            now=self._clock(),
            max_stale_seconds=max_stale,
            max_unlisted_seconds=self._max_unlisted_seconds,
        )
        if held and not self._kept.retained.assignments:
            log.warning("owners dropped", source=NAME, assignments=held, older_than_seconds=max_stale)
        self._set_health(started, error)

    @property
    def _max_unlisted_seconds(self) -> float:
        """The time for which the last answer with pods holds while the kubelet lists none, as if it were down."""
        max_stale = self._settings.max_stale_seconds
        return STALE_WHILE_REFUSED_SECONDS if max_stale is None else max_stale

    def _set_health(self, started: float, error: SourceError | None) -> None:
        odd = None
        if error is None and not self._kept.retained.lists_pods:
            odd = _OWNERS_ARE_KEPT if self._kept.retained.unlisted else _NO_PODS
        self._attempts.note(error, took_seconds=self._clock() - started, now_seconds=time.time(), odd=odd)

    def _socket_identity(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._settings.socket)  # noqa: PTH116 - one system call on a local file system
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_ctime_ns

    async def _list(self) -> PodResources:
        try:
            return await self._call(self._version)
        except Unsupported:
            other = "v1alpha1" if self._version == "v1" else "v1"
            answer = await self._call(other)
            self._version = other
            return answer

    async def _call(self, version: str) -> PodResources:
        body = await self._client.call(LIST_METHODS[version], versions="v1 or v1alpha1")
        came = fingerprint(body)
        changed = self._last is None or self._last[:2] != (version, came)
        log.debug("kubelet answered", version=version, bytes=len(body), changed=changed)
        if self._last is None or changed:
            answer = self._reader.read(body, version)
            if self._last is not None and answer == self._last[2]:
                answer = self._last[2]  # the same answer in another order: nobody need work anything out again
            self._last = (version, came, answer)
        return self._last[2]
