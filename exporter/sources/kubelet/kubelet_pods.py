"""The kubelet's Pods API: labels, UIDs, owners and container ids of this node's pods, over a socket on this node.

One stream (WatchPods) sends every pod, then INITIAL_SYNC_COMPLETE, and then all changes. It needs no API server and no
token. The package is v1alpha1 today; newer versions are tried first.

A kubelet that has just started sends INITIAL_SYNC_COMPLETE before any pod. It reports a pod that has ended as DELETED
(only with name, namespace and uid) although the API server keeps it. sources/node_pods.py allows for both.
"""

import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet

import grpc.aio

from exporter._gen import pods_pb2 as messages
from exporter.errors import SourceError, Unavailable, Unsupported
from exporter.model.pods import (
    AllocatedDevice,
    ContainerEnd,
    OwnerReference,
    PodContainer,
    PodInfo,
    PodsByName,
    PodsOfNames,
)
from exporter.model.snapshot import PODS, Health
from exporter.ownership.retention import STALE_WHILE_REFUSED_SECONDS
from exporter.sources.hearing import LISTENER
from exporter.sources.kubelet.socket import ENDED, PODS_API, open_channel, parsed, translate
from exporter.sources.node_pods import (
    PodStop,
    PodTable,
    Termination,
    annotations_among,
    container_of_spec,
    end_of_container,
)
from exporter.sources.polled import Watch
from exporter.sources.source import Bounds, Clock, OnHealth

VERSIONS = ("v1", "v1beta1", "v1alpha1")
LONGEST_PAUSE_SECONDS = 1.0
# the kubelet's note of a pod's origin: "api", or for a static pod "file" or "http"
CONFIG_SOURCE = "kubernetes.io/config.source"


def parse_pod(body: bytes, annotations: AbstractSet[str] = frozenset()) -> PodInfo:
    """The facts that are read of a serialised core/v1 Pod, with these `annotations`.

    Raises Malformed: the bytes are no such message.
    """
    pod = parsed(messages.Pod(), body, "a pod of the Pods API is no core/v1 Pod", PODS_API)
    statuses = (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
    return PodInfo(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        labels=dict(pod.metadata.labels),
        annotations=annotations_among(pod.metadata.annotations, annotations),
        owners=tuple(
            OwnerReference(
                api_version=owner.apiVersion,
                kind=owner.kind,
                name=owner.name,
                uid=owner.uid,
                is_controller=owner.controller,
            )
            for owner in pod.metadata.ownerReferences
        ),
        containers=(
            *_of_spec(pod.spec.initContainers, is_init=True),
            *_of_spec(pod.spec.containers, is_init=False),
        ),
        phase=pod.status.phase,
        ip=pod.status.podIP,
        created_at_seconds=float(pod.metadata.creationTimestamp.seconds) or None,
        container_ids={container.name: container.containerID for container in statuses if container.containerID},
        allocated={
            container.name: _allocated(container) for container in statuses if container.allocatedResourcesStatus
        },
        ends=dict(_ends(pod, statuses)),
        is_static=pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api",
    )


def _ends(pod: messages.Pod, statuses: Iterable[messages.ContainerStatus]) -> Iterator[tuple[str, ContainerEnd]]:
    """The last end of each container that has ended."""
    asked_at = None
    if pod.metadata.HasField("deletionTimestamp"):
        asked_at = float(pod.metadata.deletionTimestamp.seconds - pod.metadata.deletionGracePeriodSeconds)
    stop = PodStop(reason=pod.status.reason, asked_at=asked_at)
    for status in statuses:
        end = end_of_container(map(_termination, (status.state, status.lastState)), stop)
        if end is not None:
            yield status.name, end


def _termination(state: messages.ContainerState) -> Termination | None:
    if not state.HasField("terminated"):
        return None
    terminated = state.terminated
    return Termination(
        id=terminated.containerID,
        exit_code=terminated.exitCode,
        reason=terminated.reason,
        at_seconds=float(terminated.finishedAt.seconds) or None,
    )


def _of_spec(containers: Iterable[messages.Container], *, is_init: bool) -> Iterator[PodContainer]:
    for container in containers:
        yield container_of_spec(container.name, container.resources.limits, is_init=is_init)


def _allocated(container: messages.ContainerStatus) -> tuple[AllocatedDevice, ...]:
    """The devices in a container's status, each with its health."""
    return tuple(
        AllocatedDevice(resource=status.name, device_id=device.resourceID, health=device.health, message=device.message)
        for status in container.allocatedResourcesStatus
        for device in status.resources
    )


class PodsApi(Watch):
    """The pods of this node, kept up to date by the kubelet."""

    def __init__(
        self,
        *,
        socket: str,
        on_health: OnHealth,
        annotations: AbstractSet[str] = frozenset(),
        max_stale_seconds: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`annotations` are those that are kept of a pod.

        `max_stale_seconds` is the time for which pods outlive a kubelet that reports none; None: as for owners.
        """
        super().__init__(PODS, self._note_health, longest_pause_seconds=LONGEST_PAUSE_SECONDS)
        self._on_health = on_health
        self._socket = socket
        self._annotations = annotations
        self._clock = clock
        self._table = PodTable(
            is_of_kubelet=True,
            max_silence_seconds=STALE_WHILE_REFUSED_SECONDS if max_stale_seconds is None else max_stale_seconds,
        )
        self.bounds: Bounds = self._table.bounds(clock)
        self._channel: grpc.aio.Channel | None = None
        self._listener = LISTENER.get()
        # the last version is only asked for after the kubelet said that it does not know the others
        self._version = VERSIONS[0]

    @property
    def pods(self) -> PodsByName:
        """The pods by namespace and name; the same object as long as nothing changed."""
        return self._table.by_name(now=self._clock())

    @property
    def pods_of_names(self) -> PodsOfNames:
        """The pods that bear or bore each name; the same object as long as nothing changed."""
        return self._table.pods_of_names(now=self._clock())

    async def close(self) -> None:
        """End the stream and the channel."""
        await super().close()
        if self._channel is not None:
            await self._channel.close()

    async def _attend(self) -> None:
        for version in (self._version, *VERSIONS):
            try:
                await self._stream(version)
            except Unsupported:
                continue
            except SourceError:
                self._version = VERSIONS[0]  # the kubelet that comes back may be a newer one
                raise
            raise Unavailable("unreachable", f"{self._socket}: the kubelet ended the stream of pods", remedy=ENDED)
        raise Unsupported(
            f"{self._socket} serves no Pods API that is known ({', '.join(VERSIONS)})",
            remedy=f"{PODS_API.is_this_it}, or read pods from the Kubernetes API with --pods.source api",
        )

    async def _stream(self, version: str) -> None:
        """Take events of this version of the API until the kubelet ends the stream. Raises SourceError: it breaks."""
        if self._channel is None:
            self._channel = open_channel(self._socket)
        method = f"{version}.Pods/WatchPods"
        call = self._channel.unary_stream(f"/{method}", request_serializer=bytes, response_deserializer=bytes)(b"")
        self._table.open_stream()
        if self._listener is not None:
            self._listener.listed("pods", PODS, method, [])
        try:
            async for body in call:
                self._version = version
                self._take(body)
        except grpc.aio.AioRpcError as error:
            failure = translate(error, self._socket, PODS_API, version)
            if self._listener is not None:
                self._listener.failed("pods", PODS, method, failure.trouble)
            raise failure from error
        finally:
            call.cancel()

    def _take(self, body: bytes) -> None:
        """Take an event, a serialised WatchPodsEvent. Raises Malformed: it is none."""
        event = parsed(messages.WatchPodsEvent(), body, f"{self._socket} sends no WatchPodsEvent", PODS_API)
        if self._listener is not None and event.type in (messages.ADDED, messages.MODIFIED, messages.DELETED):
            from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - only a bundle needs it

            is_gone = event.type == messages.DELETED
            method = f"{self._version}.Pods/WatchPods"
            pod = parsed(messages.Pod(), event.pod, "a pod of the Pods API is no core/v1 Pod", PODS_API)
            self._listener.changed("pods", PODS, method, MessageToDict(pod), is_gone=is_gone)
        if event.type in (messages.ADDED, messages.MODIFIED):
            self._table.put(parse_pod(event.pod, self._annotations), now=self._clock())
        elif event.type == messages.DELETED:
            self._table.remove(parse_pod(event.pod).uid, now=self._clock())
        elif event.type == messages.INITIAL_SYNC_COMPLETE:
            self._table.end_sync(now=self._clock())
            self._table.hear_all()
            self.in_sync()
        self.heard()

    def _note_health(self, name: str, health: Health) -> None:
        if not health.up:
            self._table.cut_off(self._clock())
        self._on_health(name, health)
