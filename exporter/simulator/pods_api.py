"""The simulated Pods API of a kubelet, on a unix socket: every pod, then INITIAL_SYNC_COMPLETE, then each change.

It behaves as a recorded kubelet did (1.36.2):

- pods come in random order;
- a pod that ends is DELETED a while after its end; until then a new stream has it as ADDED;
- DELETED carries only name, namespace and uid;
- a new pod with an old pod's name is ADDED 69 ms after the old pod is DELETED.

Tests: tests/simulator/test_allocators.py.
"""

import asyncio
import hashlib
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from exporter._gen import pods_pb2 as messages
from exporter.simulator.kubelet import Context, server_at
from exporter.simulator.parts import Container, Pod

LOOK_SECONDS = 0.02
REMADE_SECONDS = 0.069


def pod_message(pod: Pod) -> bytes:
    """A pod as a serialised core/v1 Pod."""
    content = described(pod)
    content["metadata"] |= {
        "creationTimestamp": {"seconds": pod.created},
        "annotations": {"kubernetes.io/config.source": "file" if pod.is_static else "api", **dict(pod.annotations)},
    }
    content["spec"] = {kind: [_as_message(container) for container in of_kind] for kind, of_kind in spec(pod).items()}
    for kind in ("containerStatuses", "initContainerStatuses"):
        content["status"][kind] = [_as_status(status) for status in content["status"][kind]]
    body: bytes = messages.Pod(**content).SerializeToString()
    return body


def _as_message(container: dict[str, Any]) -> dict[str, Any]:
    limits = container["resources"].get("limits", {})
    quantities = {resource: {"string": number} for resource, number in limits.items()}
    return {"name": container["name"], "resources": {"limits": quantities}}


def _as_status(status: dict[str, Any]) -> dict[str, Any]:
    """A container's status, as far as the message here has it: of states only those of a container that ended."""
    fields = {name: status[name] for name in ("name", "containerID", "allocatedResourcesStatus")}
    for name in ("state", "lastState"):
        terminated = status[name].get("terminated")
        if terminated:
            finished = {"seconds": round(datetime.fromisoformat(terminated["finishedAt"]).timestamp())}
            fields[name] = {"terminated": {**terminated, "finishedAt": finished}}
    return fields


def described(pod: Pod) -> dict[str, Any]:
    """The fields of a pod that the kubelet and the API server both have, by the names of core/v1."""
    kind, name = pod.owner
    version = "batch/v1" if kind == "Job" else "apps/v1"
    owner = {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True}
    return {
        "metadata": {
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
            "labels": dict(pod.labels),
            **({"annotations": dict(pod.annotations)} if pod.annotations else {}),
            "ownerReferences": [owner] if kind else [],
        },
        "status": {
            "phase": pod.phase,
            "podIP": pod.ip,
            "containerStatuses": [_status(pod, one) for one in pod.containers if not one.is_sidecar],
            "initContainerStatuses": [_status(pod, one) for one in pod.containers if one.is_sidecar],
        },
    }


def _status(pod: Pod, container: Container) -> dict[str, Any]:
    allocated = _allocated(container)
    state, last_state = _states(pod, container)
    return {
        "name": container.name,
        "state": state,
        "lastState": last_state,
        "restartCount": container.starts,
        "containerID": container_id(pod, container.name),
        "allocatedResourcesStatus": allocated,
    }


def _states(pod: Pod, container: Container) -> tuple[dict[str, Any], dict[str, Any]]:
    """A container's state and last state, as a recorded kubelet had them (1.36.2)."""
    end = container.end
    if end is None:
        return {"running": {}}, {}
    terminated = {
        "terminated": {
            "exitCode": end.exit_code,
            "reason": end.reason,
            "finishedAt": f"{datetime.fromtimestamp(end.at_seconds, UTC):%Y-%m-%dT%H:%M:%SZ}",
            "containerID": _id_of_start(pod, container.name, end.start),
        }
    }
    if pod.has_ended:
        return terminated, {}
    if container.running:
        return {"running": {}}, terminated
    name = f"container={container.name} pod={pod.name}_{pod.namespace}({pod.uid})"
    waiting = {"reason": "CrashLoopBackOff", "message": f"back-off 10s restarting failed {name}"}
    return {"waiting": waiting}, terminated


def spec(pod: Pod) -> dict[str, list[dict[str, Any]]]:
    """The containers of a pod's spec, by the names of core/v1."""
    init_containers, containers = pod.in_spec
    return {
        "initContainers": [_in_spec(container) for container in init_containers],
        "containers": [_in_spec(container) for container in containers],
    }


def _in_spec(container: Container) -> dict[str, Any]:
    limits = {resource: str(number) for resource, number in container.limits.items()}
    fields: dict[str, Any] = {"name": container.name, "resources": {"limits": limits} if limits else {}}
    return {**fields, "restartPolicy": "Always"} if container.is_sidecar else fields


def _allocated(container: Container) -> list[dict[str, Any]]:
    """The allocated devices and their health, as a kubelet 1.36 has them.

    NVIDIA's DRA driver has no health service, so the health of its devices is unknown.
    """
    ailing = {
        device_id: {"health": health, **({"message": message} if message else {})}
        for device_id, health, message in container.ailing
    }
    healths: defaultdict[str, list[dict[str, str]]] = defaultdict(list)
    for resource, device_id in container.devices:
        healths[resource].append({"resourceID": device_id, "health": "Healthy", **ailing.get(device_id, {})})
    for claim in container.all_claims:
        healths[f"claim:{claim.name}"] += (
            {"resourceID": name, "health": "Unknown", **ailing.get(name, {})} for name in claim.cdi_names
        )
    return [{"name": name, "resources": resources} for name, resources in healths.items()]


def container_id(pod: Pod, container: str) -> str:
    """A container's id in containerd's form, which depends on the pod's UID, the container's name and its starts."""
    starts = next((one.starts for one in pod.containers if one.name == container), 0)
    return _id_of_start(pod, container, starts)


def _id_of_start(pod: Pod, container: str, start: int) -> str:
    text = f"{pod.uid} {container} {start}" if start else f"{pod.uid} {container}"
    return f"containerd://{hashlib.sha256(text.encode()).hexdigest()}"


class SimulatedPodsApi:
    """The server of WatchPods."""

    version = "v1alpha1"
    deleted_after_seconds = 1.5

    def __init__(self, socket: Path, pods: Callable[[], Sequence[Pod]]) -> None:
        self._socket = socket
        self._all_pods = pods
        self._server: grpc.aio.Server | None = None
        self._broken = asyncio.Event()
        self._random = random.Random(1)

    async def start(self) -> None:
        """Start to serve."""
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "WatchPods": grpc.unary_stream_rpc_method_handler(self.watch)
        }
        service = grpc.method_handlers_generic_handler(f"{self.version}.Pods", handlers)
        self._server = await server_at(self._socket, (service,))

    async def stop(self) -> None:
        """Stop at once. The socket file stays, as a real kubelet leaves it."""
        if self._server is not None:
            self.break_streams()
            await self._server.stop(grace=None)
            self._server = None

    def break_streams(self) -> None:
        """End every watch. The server goes on."""
        self._broken.set()
        self._broken = asyncio.Event()

    def pods(self) -> Sequence[Pod]:
        """The pods that the kubelet knows."""
        return self._all_pods()

    def stream(self) -> "Stream":
        """The stream of a new watch."""
        return Stream(self.deleted_after_seconds)

    async def watch(self, _: bytes, context: Context) -> AsyncIterator[bytes]:
        """Answer WatchPods."""
        broken = self._broken
        stream = self.stream()
        is_first = True
        while not broken.is_set():
            pods = self.pods()
            for pause_seconds, event in stream.events(self._random.sample(pods, len(pods))):
                await asyncio.sleep(pause_seconds)
                yield event
            if is_first:
                is_first = False
                yield messages.WatchPodsEvent(type=messages.INITIAL_SYNC_COMPLETE).SerializeToString()
            await asyncio.sleep(LOOK_SECONDS)
        await context.abort(grpc.StatusCode.UNAVAILABLE, "the watch was broken")


class Stream:
    """The pods that a watch has sent. From them follow the events that it sends next."""

    def __init__(self, deleted_after_seconds: float) -> None:
        self._deleted_after_seconds = deleted_after_seconds
        self._sent: dict[str, Pod] = {}
        self._delete_at: dict[str, float] = {}
        self._deleted = set[str]()

    def events(self, now_known: Sequence[Pod]) -> Iterator[tuple[float, bytes]]:
        """The events since the last call, each with the pause before it in seconds."""
        now = time.monotonic()
        pods = {pod.uid: pod for pod in now_known}
        gone = self._sent.keys() - pods.keys()
        names = {(self._sent[uid].namespace, self._sent[uid].name) for uid in gone}
        for uid in gone:
            yield from self._delete(self._sent[uid])
        for uid, pod in pods.items():
            before = self._sent.get(uid)
            if before is None:
                yield REMADE_SECONDS * ((pod.namespace, pod.name) in names), _event(messages.ADDED, pod_message(pod))
            elif before != pod:
                yield 0.0, _event(messages.MODIFIED, pod_message(pod))
            if pod.has_ended and before is not None and not before.has_ended:
                self._delete_at[uid] = now + self._deleted_after_seconds
            if now >= self._delete_at.get(uid, inf):
                yield from self._delete(pod)
        self._sent = pods

    def _delete(self, pod: Pod) -> Iterator[tuple[float, bytes]]:
        if pod.uid not in self._deleted:
            self._deleted.add(pod.uid)
            identity = messages.ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid)
            yield 0.0, _event(messages.DELETED, messages.Pod(metadata=identity).SerializeToString())


def _event(kind: "messages.EventType.ValueType", pod: bytes) -> bytes:
    body: bytes = messages.WatchPodsEvent(type=kind, pod=pod).SerializeToString()
    return body
