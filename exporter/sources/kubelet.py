"""The kubelet's pod-resources socket: which container holds which device.

One grpc channel for the life of the program, set up for a peer that restarts (kubelet_socket.py). v1 is asked first,
v1alpha1 where v1 is UNIMPLEMENTED. The answer's bytes are parsed only when they differ from the last.

What the kubelet last said outlives its failures: the rules are in attribution/retention.py. Whether a new answer comes
from another kubelet is seen on the socket file (device, inode and change time: inode numbers recur) and on a
connection that was lost since.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence

import grpc.aio
from google.protobuf.message import DecodeError

from exporter._gen import podresources_v1_pb2 as v1
from exporter._gen import podresources_v1alpha1_pb2 as v1alpha1
from exporter.attribution.owners import select
from exporter.attribution.retention import (
    STALE_OTHERWISE_SECONDS,
    STALE_WHILE_REFUSED_SECONDS,
    Retained,
    answered,
    failed,
    read_by_built_in_rules,
)
from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.model import Assignment, Claim, DeviceRef, Health, Owner, PodResources
from exporter.sources.attempt import health_after
from exporter.sources.kubelet_socket import open_channel, translate
from exporter.sources.single_flight import SingleFlight
from exporter.telemetry import debug, log

NAME = "kubelet"
# 16 GPUs in 48 shares each are 768
MOST_ASSIGNMENTS = 50_000
LIST_METHODS = {"v1": "/v1.PodResourcesLister/List", "v1alpha1": "/v1alpha1.PodResourcesLister/List"}

ListResponse = v1.ListPodResourcesResponse | v1alpha1.ListPodResourcesResponse
RESPONSE_TYPES: dict[str, type[ListResponse]] = {
    "v1": v1.ListPodResourcesResponse,
    "v1alpha1": v1alpha1.ListPodResourcesResponse,
}


def parse(body: bytes, version: str = "v1", *, claims: bool = False) -> PodResources:
    """A serialised ListPodResourcesResponse as assignments; with `claims` those of DRA as well.

    A container has several `devices` entries of one resource when they sit on several NUMA nodes; they add up.

    Raises:
        Malformed: the bytes are no such message, or name too many devices.
    """
    response = RESPONSE_TYPES[version]()
    try:
        response.ParseFromString(body)
    except DecodeError as error:
        raise Malformed("garbage", f"the kubelet's answer is no {version} ListPodResourcesResponse: {error}") from error
    found: set[Assignment] = set()
    for pod in response.pod_resources:
        for container in pod.containers:
            owner = Owner(namespace=pod.namespace, pod=pod.name, container=container.name)
            for devices in container.devices:
                for device_id in devices.device_ids:
                    found.add(Assignment(owner=owner, resource=devices.resource_name, device_id=device_id))
            if claims and isinstance(container, v1.ContainerResources):
                found.update(
                    Assignment(owner=owner, resource=claim.driver, device_id=claim.device_id, claim=claim)
                    for claim in _claims(container)
                )
    if len(found) > MOST_ASSIGNMENTS:
        raise Malformed("oversize", f"the kubelet names {len(found)} devices, and at most {MOST_ASSIGNMENTS} are read")
    return PodResources(
        assignments=frozenset(found),
        listed=frozenset((pod.namespace, pod.name) for pod in response.pod_resources),
    )


def _claims(container: v1.ContainerResources) -> Iterator[Claim]:
    """ContainerResources.dynamic_resources: each device of each claim."""
    for dynamic in container.dynamic_resources:
        for device in dynamic.claim_resources:
            yield Claim(
                namespace=dynamic.claim_namespace,
                name=dynamic.claim_name,
                driver=device.driver_name,
                pool=device.pool_name,
                device=device.device_name,
                cdi_names=tuple(cdi.name for cdi in device.cdi_devices),
                share=device.share_id,
            )


class KubeletSource:
    """Assignments as the kubelet last gave them, read when asked for and kept while it is away."""

    def __init__(
        self,
        *,
        socket: str,
        timeout_seconds: float,
        max_age_seconds: float,
        max_stale_seconds: float | None,
        resources: Sequence[str],
        on_health: Callable[[str, Health], None],
        claims: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_stale_seconds` None: 10 minutes while the connection is refused, 1 minute for any other failure.

        With `claims`, the devices of DRA claims are among the assignments, without it they are left `outside`.
        """
        self.health = Health()
        self.read: Callable[[Assignment], DeviceRef | None] = read_by_built_in_rules  # what an assignment refers to
        self._socket = socket
        self._timeout_seconds = timeout_seconds
        self._max_age_seconds = max_age_seconds
        self._max_stale_seconds = max_stale_seconds
        self._resources = tuple(resources)
        self._on_health = on_health
        self._claims = claims
        self._clock = clock
        self._flight = SingleFlight(self._refresh)
        self._retained = Retained()
        self._version = "v1"
        self._last: tuple[str, bytes, PodResources] | None = None
        self._answered_on: tuple[int, int, int] | None = None
        self._connection_lost = False
        self._attempted_at: float | None = None
        self._channel: grpc.aio.Channel | None = None

    async def close(self) -> None:
        """End the call in flight and the channel."""
        await self._flight.close()
        if self._channel is not None:
            await self._channel.close()

    @property
    def assignments(self) -> frozenset[Assignment]:
        """What is in force now. The same object as long as nothing changed."""
        return self._retained.assignments

    @property
    def outside(self) -> tuple[Assignment, ...]:
        """What the last answer handed out of resources that are left out."""
        return self._last[2].outside if self._last else ()

    @property
    def version(self) -> str:
        """The interface that the kubelet answered last, v1 or v1alpha1; "" before the first answer."""
        return self._last[0] if self._last else ""

    @property
    def age_seconds(self) -> float | None:
        """How old the kubelet's last answer is; None before the first."""
        answered_at = self._retained.answered_at
        return None if answered_at is None else max(0.0, self._clock() - answered_at)

    def begin(self) -> asyncio.Task[Health] | None:
        """The call in flight, or a new one; None while the last answer is younger than `max_age_seconds`.

        A failed attempt is not repeated at once either, so that a crowd of scrapes does not become a crowd of calls.
        The task raises nothing for the kubelet's sake: its result is how it went, `assignments` what is in force.
        """
        since = None if self._attempted_at is None else self._clock() - self._attempted_at
        fresh_for = self._max_age_seconds if self.health.up else self._max_age_seconds / 2
        return self._flight.begin() if since is None or since >= fresh_for else None

    async def _refresh(self) -> Health:
        started = self._clock()
        identity = self._socket_identity()
        try:
            answer = await self._list()
        except SourceError as error:
            self._note_failure(error, started)
        else:
            reconnected = self._connection_lost or self._socket_identity() != self._answered_on
            self._retained = answered(
                self._retained, answer, now=self._clock(), reconnected=reconnected, read=self.read
            )
            # The identity from before the call: a socket replaced during the call is noticed by the next one.
            self._answered_on = identity
            self._connection_lost = False
            self._set_health(started, None)
        self._attempted_at = self._clock()
        return self.health

    def _note_failure(self, error: SourceError, started: float) -> None:
        if isinstance(error, Unavailable) and error.reason != "rate_limited":
            self._connection_lost = True
            self._version = "v1"  # the kubelet that comes back may be a newer one
        max_stale = self._max_stale_seconds
        if max_stale is None:
            max_stale = STALE_WHILE_REFUSED_SECONDS if error.reason == "refused" else STALE_OTHERWISE_SECONDS
        held = len(self._retained.assignments)
        self._retained = failed(self._retained, now=self._clock(), max_stale_seconds=max_stale)
        if held and not self._retained.assignments:
            log(logging.WARNING, "owners dropped", source=NAME, assignments=held, older_than_seconds=max_stale)
        self._set_health(started, error)

    def _set_health(self, started: float, error: SourceError | None) -> None:
        self.health = health_after(self.health, error, took_seconds=self._clock() - started, now_seconds=time.time())
        self._on_health(NAME, self.health)

    def _socket_identity(self) -> tuple[int, int, int] | None:
        try:
            status = os.stat(self._socket)  # noqa: PTH116 - one system call on a local file system
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
        if self._channel is None:
            self._channel = open_channel(self._socket)
        call = self._channel.unary_unary(
            LIST_METHODS[version], request_serializer=lambda body: body, response_deserializer=lambda body: body
        )
        try:
            body: bytes = await call(b"", timeout=self._timeout_seconds)
        except grpc.aio.AioRpcError as error:
            raise translate(
                error,
                socket=self._socket,
                setting="--kubelet.socket",
                serves="pod-resources v1 or v1alpha1",
                timeout_seconds=self._timeout_seconds,
            ) from error
        changed = self._last is None or self._last[:2] != (version, body)
        debug("kubelet answered", version=version, bytes=len(body), changed=changed)
        if self._last is None or changed:
            answer = parse(body, version, claims=True)
            wanted, outside = select(answer.assignments, self._resources, claims=self._claims)
            answer = PodResources(assignments=wanted, listed=answer.listed, outside=outside)
            self._last = (version, body, answer)
        return self._last[2]
