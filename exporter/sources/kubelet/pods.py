"""The kubelet's Pods API: labels, UIDs, owners and container ids of this node's pods, over a socket on this node.

One stream (WatchPods) tells every pod, says INITIAL_SYNC_COMPLETE, and then tells what changes. It needs no API server
and no token. The package is v1alpha1 today; newer ones are tried first.

A kubelet that has just started says INITIAL_SYNC_COMPLETE before it tells of any pod, and a pod that has ended is told
of as DELETED (name, namespace and uid alone) although the API server keeps it: what that means is in pod_table.py.
"""

import time
from collections.abc import Callable, Mapping

import grpc.aio
from google.protobuf.message import DecodeError

from exporter._gen import pods_pb2 as messages
from exporter.attribution.retention import STALE_WHILE_REFUSED_SECONDS
from exporter.errors import Malformed, SourceError, Unavailable, Unsupported
from exporter.model.pods import Bearers, OwnerReference, PodInfo
from exporter.model.snapshot import Health
from exporter.sources.any_pods import PODS
from exporter.sources.kubelet.socket import PODS_API, open_channel, translate
from exporter.sources.pod_table import PodTable
from exporter.sources.source import PATIENCE_SECONDS, Bound, OnHealth
from exporter.sources.watch import Watch

VERSIONS = ("v1", "v1beta1", "v1alpha1")
LONGEST_PAUSE_SECONDS = 1.0
# the kubelet's own note of where it has a pod from: "api", or for a static pod "file" or "http"
CONFIG_SOURCE = "kubernetes.io/config.source"


def parse_pod(body: bytes) -> PodInfo:
    """A serialised core/v1 Pod, as far as this program reads it.

    Raises:
        Malformed: the bytes are no such message.
    """
    pod = messages.Pod()
    try:
        pod.ParseFromString(body)
    except DecodeError as error:
        raise Malformed(
            "garbage", f"a pod of the Pods API is no core/v1 Pod: {error}", remedy=PODS_API.is_this_it
        ) from error
    return PodInfo(
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        labels=dict(pod.metadata.labels),
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
        phase=pod.status.phase,
        ip=pod.status.podIP,
        created_at_seconds=float(pod.metadata.creationTimestamp.seconds) or None,
        container_ids={
            container.name: container.containerID
            for container in (*pod.status.initContainerStatuses, *pod.status.containerStatuses)
            if container.containerID
        },
        is_static=pod.metadata.annotations.get(CONFIG_SOURCE, "api") != "api",
    )


class PodsApi:
    """The pods of this node, kept up to date by the kubelet."""

    name = PODS
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        *,
        socket: str,
        on_health: OnHealth,
        max_stale_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_stale_seconds` is how long pods outlive a kubelet that tells of none; None: 10 minutes, as owners do."""
        self._socket = socket
        self._clock = clock
        self._watch = Watch(PODS, self._attend, on_health, longest_pause_seconds=LONGEST_PAUSE_SECONDS)
        self._table = PodTable(
            max_silence_seconds=STALE_WHILE_REFUSED_SECONDS if max_stale_seconds is None else max_stale_seconds
        )
        self.bounds: Mapping[str, Bound] = self._table.bounds(clock)
        self._channel: grpc.aio.Channel | None = None
        # the last one is not asked for before the others said that they do not know it
        self._version = VERSIONS[0]
        self.begin = self._watch.begin

    @property
    def health(self) -> Health:
        """How the stream is."""
        return self._watch.health

    @property
    def pods(self) -> Mapping[tuple[str, str], PodInfo]:
        """By namespace and name; the same object as long as nothing changed."""
        return self._table.by_name(now=self._clock())

    @property
    def bearers(self) -> Bearers:
        """Who bears a name, and who did; the same object as long as nothing changed."""
        return self._table.bearers(now=self._clock())

    async def close(self) -> None:
        """End the stream and the channel."""
        await self._watch.close()
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
            raise Unavailable(
                "unreachable",
                f"{self._socket}: the kubelet ended the stream of pods",
                remedy="the kubelet may be restarting, and is asked again; if this stays, look at its log on the node",
            )
        raise Unsupported(
            "unimplemented",
            f"{self._socket} serves no Pods API that is known ({', '.join(VERSIONS)})",
            remedy=f"{PODS_API.is_this_it}, or read pods from the Kubernetes API with --pods.source api",
        )

    async def _stream(self, version: str) -> None:
        if self._channel is None:
            self._channel = open_channel(self._socket)
        call = self._channel.unary_stream(
            f"/{version}.Pods/WatchPods", request_serializer=lambda body: body, response_deserializer=lambda body: body
        )(b"")
        self._table.open_stream()
        try:
            async for body in call:
                self._version = version
                self._take(body)
        except grpc.aio.AioRpcError as error:
            raise translate(
                error,
                socket=self._socket,
                of=PODS_API,
                versions=version,
                timeout_seconds=0.0,
            ) from error
        finally:
            call.cancel()

    def _take(self, body: bytes) -> None:
        event = messages.WatchPodsEvent()
        try:
            event.ParseFromString(body)
        except DecodeError as error:
            raise Malformed(
                "garbage", f"{self._socket} sends no WatchPodsEvent: {error}", remedy=PODS_API.is_this_it
            ) from error
        if event.type in (messages.ADDED, messages.MODIFIED):
            self._table.put(parse_pod(event.pod), now=self._clock())
        elif event.type == messages.DELETED:
            self._table.remove(parse_pod(event.pod).uid, now=self._clock())
        elif event.type == messages.INITIAL_SYNC_COMPLETE:
            self._table.end_sync(now=self._clock())
            self._watch.in_sync()
        self._watch.heard()
