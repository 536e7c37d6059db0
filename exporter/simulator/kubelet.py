"""A simulated kubelet on a real unix socket, which answers as recorded kubelets did (1.20.2 and 1.36.2)."""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import grpc
import grpc.aio

from exporter._gen import podresources_v1_pb2 as v1
from exporter.model.devices import Claim
from exporter.simulator.parts import Container, Pod, Slot

T = TypeVar("T")
Context = grpc.aio.ServicerContext[bytes, bytes]
Offers = Callable[[], Sequence[Slot]]


async def server_at(socket: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> grpc.aio.Server:
    """A server on a socket that is renamed into place. So its `stop` leaves the socket there, as a kubelet does."""
    # no SO_REUSEPORT: a socket file has one server, as with the kubelet
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers(handlers)
    beside = socket.with_name(f"{socket.name}.new")
    server.add_insecure_port(f"unix:{beside}")
    await server.start()
    os.replace(beside, socket)  # noqa: PTH105 - atomic, and no await between
    return server


ClaimName = tuple[str, str]  # namespace and name
_PREPARED_ONCE: Mapping[ClaimName, int] = MappingProxyType({})


def list_response(
    pods: Sequence[Pod], order: random.Random | None = None, prepared: Mapping[ClaimName, int] = _PREPARED_ONCE
) -> bytes:
    """Pods as a serialised ListPodResourcesResponse. Each device has an entry of its own, as with NUMA topology.

    Like the kubelet, it leaves out init containers, lists other containers before they start, and shuffles (by
    `order`). `prepared` has the number of times that each claim was prepared, if more than once.
    """
    response = v1.ListPodResourcesResponse()
    for pod in _shuffled(pods, order):
        entry = response.pod_resources.add(namespace=pod.namespace, name=pod.name)
        for container in pod.containers:
            entry.containers.add(
                name=container.name,
                devices=_devices(container.devices, order),
                dynamic_resources=_dynamic(container, pod, prepared),
            )
    body: bytes = response.SerializeToString()
    return body


def allocatable_response(devices: Sequence[Slot], order: random.Random | None = None) -> bytes:
    """Devices as a serialised AllocatableResourcesResponse, each with its own entry as with NUMA."""
    body: bytes = v1.AllocatableResourcesResponse(devices=_devices(devices, order)).SerializeToString()
    return body


def _shuffled(items: Sequence[T], order: random.Random | None) -> Sequence[T]:
    return order.sample(items, len(items)) if order else items


def _devices(devices: Sequence[Slot], order: random.Random | None) -> list[v1.ContainerDevices]:
    return [
        v1.ContainerDevices(resource_name=resource, device_ids=[device_id])
        for resource, device_id in _shuffled(devices, order)
    ]


def _dynamic(container: Container, pod: Pod, prepared: Mapping[ClaimName, int]) -> list[v1.DynamicResource]:
    """An entry for each claim of the container, with all devices of the claim, also those of other containers."""
    devices_of: defaultdict[ClaimName, dict[Claim, None]] = defaultdict(dict)
    for claim in pod.all_claims:
        devices_of[_name(claim)][claim] = None
    return [
        v1.DynamicResource(
            claim_name=name[1],
            claim_namespace=name[0],
            claim_resources=_entries(tuple(devices_of[name]) * prepared.get(name, 1)),
        )
        for name in dict.fromkeys(map(_name, container.all_claims))
    ]


def _name(claim: Claim) -> ClaimName:
    return claim.namespace, claim.name


def _entries(devices: Sequence[Claim]) -> list[v1.ClaimResource]:
    """An entry for each time that a driver named a device, with the CDI names of those before it, too (1.36.2)."""
    cdi_names: defaultdict[str, list[v1.CDIDevice]] = defaultdict(list)
    entries = []
    for device in devices:
        if not device.driver:
            continue  # the kubelet names no device of a driver that prepares nothing on the node
        cdi_names[device.driver] += (v1.CDIDevice(name=name) for name in device.cdi_names)
        entries.append(
            v1.ClaimResource(
                driver_name=device.driver,
                pool_name=device.pool,
                device_name=device.device,
                cdi_devices=cdi_names[device.driver],
                share_id=device.share or None,
            )
        )
    return entries


class PreparedClaims:
    """How often the kubelet had each claim prepared, for as long as a pod has the claim (measured on 1.36.2).

    If pods start on a claim together, the kubelet has it prepared for each of them; for a later pod it has not. A
    kubelet that restarts forgets that the claim was prepared, but keeps the result: the next pod that starts has the
    claim prepared again.
    """

    def __init__(self) -> None:
        self.times: dict[ClaimName, int] = {}
        self._pods: dict[ClaimName, set[str]] = {}
        self._is_ready: set[ClaimName] = set()

    def look(self, pods: Iterable[Pod]) -> None:
        """Note the present pods."""
        pods_of: defaultdict[ClaimName, set[str]] = defaultdict(set)
        for pod in pods:
            for claim in pod.all_claims:
                pods_of[_name(claim)].add(pod.uid or pod.name)
        self._is_ready &= pods_of.keys()
        times: dict[ClaimName, int] = {}
        for name, of_claim in pods_of.items():
            new = of_claim - self._pods.get(name, set())
            times[name] = self.times.get(name, 0)
            if new and name not in self._is_ready:
                times[name] += len(new)
                self._is_ready.add(name)
        self.times = times
        self._pods = pods_of

    def restart(self) -> None:
        """Note that the kubelet has restarted."""
        self._is_ready.clear()


class SimulatedKubelet:
    """Answers List of v1 and v1alpha1, and GetAllocatableResources of v1."""

    versions: Sequence[str] = ("v1", "v1alpha1")

    def __init__(self, socket: Path, pods: Callable[[], Sequence[Pod]], *, offers: Offers = tuple) -> None:
        """`pods` returns the pods to list. `offers` returns the plugins' devices (resource, id), handed out or not."""
        self._socket = socket
        self._pods = pods
        self.offers = offers
        self._server: grpc.aio.Server | None = None
        self._random = random.Random(1)
        self.prepared = PreparedClaims()

    async def start(self) -> None:
        """Start to serve."""
        self.prepared.restart()
        handlers = []
        for version in self.versions:
            methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
                "List": grpc.unary_unary_rpc_method_handler(partial(self.answer_list, version))
            }
            if version == "v1":
                methods["GetAllocatableResources"] = grpc.unary_unary_rpc_method_handler(self.answer_allocatable)
            handlers.append(grpc.method_handlers_generic_handler(f"{version}.PodResourcesLister", methods))
        self._server = await server_at(self._socket, handlers)

    async def stop(self) -> None:
        """Stop at once, and break calls in flight. The socket file stays."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def answer_list(self, _version: str, _: bytes, __: Context) -> bytes:
        """Answer List. The fields of v1alpha1 are the same in v1."""
        pods = self._pods()
        self.prepared.look(pods)
        return list_response(pods, self._random, self.prepared.times)

    async def answer_allocatable(self, _: bytes, __: Context) -> bytes:
        """Answer GetAllocatableResources."""
        return allocatable_response(tuple(self.offers()), self._random)
