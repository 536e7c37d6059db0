"""The kubelet's Pods API on a unix socket: every pod, INITIAL_SYNC_COMPLETE, then what changes in the world."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

import grpc
import grpc.aio

from exporter._gen import pods_pb2 as messages
from exporter.simulator.world import Pod

Context = grpc.aio.ServicerContext[bytes, bytes]
LOOK_SECONDS = 0.02


def pod_message(pod: Pod) -> bytes:
    """A pod as a serialised core/v1 Pod."""
    kind, name = pod.owner
    owners = [
        messages.OwnerReference(kind=kind, name=name, uid=f"uid-of-{name}", apiVersion="apps/v1", controller=True)
    ]
    body: bytes = messages.Pod(
        metadata=messages.ObjectMeta(
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            creationTimestamp=messages.Time(seconds=pod.created),
            labels=dict(pod.labels),
            ownerReferences=owners if kind else [],
        ),
        status=messages.PodStatus(
            phase=pod.phase,
            podIP=pod.ip,
            containerStatuses=[
                messages.ContainerStatus(name=container.name, containerID=container_id(pod, container.name))
                for container in pod.containers
            ],
        ),
    ).SerializeToString()
    return body


def container_id(pod: Pod, container: str) -> str:
    """What a container runtime would call a container."""
    return f"containerd://{hashlib.sha256(f'{pod.uid} {container}'.encode()).hexdigest()}"


class SimulatedPodsApi:
    """Serves WatchPods, ListPods and GetPod. `streams` counts the watches that came in."""

    def __init__(self, socket: Path, pods: Callable[[], Sequence[Pod]], *, version: str = "v1alpha1") -> None:
        self.streams = 0
        # what a kubelet that has just started has not heard of yet: told after INITIAL_SYNC_COMPLETE is held back
        self.synced = asyncio.Event()
        self.synced.set()
        self._socket = socket
        self._pods = pods
        self._version = version
        self._server: grpc.aio.Server | None = None
        self._broken = asyncio.Event()

    async def start(self) -> None:
        """Serve."""
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "WatchPods": grpc.unary_stream_rpc_method_handler(self._watch),
            "ListPods": grpc.unary_unary_rpc_method_handler(self._list),
            "GetPod": grpc.unary_unary_rpc_method_handler(self._get),
        }
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(f"{self._version}.Pods", handlers),)
        )
        beside = self._socket.with_name(f"{self._socket.name}.new")
        self._server.add_insecure_port(f"unix:{beside}")
        await self._server.start()
        os.replace(beside, self._socket)  # noqa: PTH105 - atomic, and no await between

    async def stop(self) -> None:
        """Go down at once. The socket file stays, as a real kubelet leaves it."""
        if self._server is not None:
            self.break_streams()
            await self._server.stop(grace=None)
            self._server = None

    def break_streams(self) -> None:
        """End every watch; the server stays."""
        self._broken.set()
        self._broken = asyncio.Event()

    async def _watch(self, _: bytes, context: Context) -> AsyncIterator[bytes]:
        self.streams += 1
        broken = self._broken
        told: dict[str, Pod] = {}
        is_first = True
        while not broken.is_set():
            pods = {pod.uid: pod for pod in self._pods()}
            for uid, pod in pods.items():
                if uid not in told:
                    yield _event(messages.ADDED, pod)
                elif told[uid] != pod:
                    yield _event(messages.MODIFIED, pod)
            for uid in told.keys() - pods.keys():
                yield _event(messages.DELETED, told[uid])
            told = pods
            if is_first:
                is_first = False
                await self.synced.wait()
                yield messages.WatchPodsEvent(type=messages.INITIAL_SYNC_COMPLETE).SerializeToString()
            await asyncio.sleep(LOOK_SECONDS)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the watch was broken")

    async def _list(self, _: bytes, __: Context) -> bytes:
        body: bytes = messages.ListPodsResponse(pods=[pod_message(pod) for pod in self._pods()]).SerializeToString()
        return body

    async def _get(self, request: bytes, context: Context) -> bytes:
        uid = messages.GetPodRequest.FromString(request).podUID
        for pod in self._pods():
            if pod.uid == uid:
                body: bytes = messages.GetPodResponse(pod=pod_message(pod)).SerializeToString()
                return body
        await context.abort(grpc.StatusCode.NOT_FOUND, f"no pod {uid}")
        raise AssertionError


def _event(kind: "messages.EventType.ValueType", pod: Pod) -> bytes:
    body: bytes = messages.WatchPodsEvent(type=kind, pod=pod_message(pod)).SerializeToString()
    return body
