"""A kubelet on a real unix socket, which answers as recorded kubelets did (1.20.2 and 1.36.2)."""

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import grpc
import grpc.aio

from exporter._gen import podresources_v1_pb2 as v1
from exporter.simulator.parts import Container, Pod, Slot

Context = grpc.aio.ServicerContext[bytes, bytes]
Offers = Callable[[], Sequence[Slot]]


async def server_at(socket: Path, handlers: Sequence[grpc.GenericRpcHandler]) -> grpc.aio.Server:
    """A server on a socket that is renamed into place: `stop` removes what it bound, and a kubelet leaves it there."""
    # no SO_REUSEPORT: one server for one socket file, as the kubelet has it
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    server.add_generic_rpc_handlers(handlers)
    beside = socket.with_name(f"{socket.name}.new")
    server.add_insecure_port(f"unix:{beside}")
    await server.start()
    os.replace(beside, socket)  # noqa: PTH105 - atomic, and no await between
    return server


def list_response(pods: Sequence[Pod], order: random.Random | None = None) -> bytes:
    """Pods as a serialised ListPodResourcesResponse. Each device has an entry of its own, as with NUMA topology.

    As the kubelet does, it leaves out init containers, lists others before they start, and shuffles (by `order`).
    """
    shuffled = order.sample if order else lambda items, _: list(items)
    body: bytes = v1.ListPodResourcesResponse(
        pod_resources=[
            v1.PodResources(
                namespace=pod.namespace,
                name=pod.name,
                containers=[
                    v1.ContainerResources(
                        name=container.name,
                        devices=[
                            v1.ContainerDevices(resource_name=resource, device_ids=[device_id])
                            for resource, device_id in shuffled(container.devices, len(container.devices))
                        ],
                        dynamic_resources=_dynamic(container),
                    )
                    for container in pod.containers
                ],
            )
            for pod in shuffled(pods, len(pods))
        ]
    ).SerializeToString()
    return body


def allocatable_response(devices: Sequence[tuple[str, str]], order: random.Random | None = None) -> bytes:
    """Devices (resource, id) as a serialised AllocatableResourcesResponse, an entry for each as with NUMA topology."""
    shuffled = order.sample(devices, len(devices)) if order else devices
    body: bytes = v1.AllocatableResourcesResponse(
        devices=[v1.ContainerDevices(resource_name=resource, device_ids=[one]) for resource, one in shuffled]
    ).SerializeToString()
    return body


def _dynamic(container: Container) -> list[v1.DynamicResource]:
    """One for each claim, with all of its devices."""
    return [
        v1.DynamicResource(
            claim_name=name,
            claim_namespace=namespace,
            claim_resources=[
                v1.ClaimResource(
                    driver_name=claim.driver,
                    pool_name=claim.pool,
                    device_name=claim.device,
                    cdi_devices=[v1.CDIDevice(name=name) for name in claim.cdi_names],
                    share_id=claim.share or None,
                )
                for claim in claims
                if claim.driver  # a driver that prepares nothing on the node: the kubelet names no device
            ],
        )
        for (namespace, name), claims in groupby(container.claims, lambda claim: (claim.namespace, claim.name))
    ]


class SimulatedKubelet:
    """Answers List of v1 and v1alpha1, and GetAllocatableResources of v1."""

    versions: Sequence[str] = ("v1", "v1alpha1")

    def __init__(self, socket: Path, pods: Callable[[], Sequence[Pod]], *, offers: Offers = tuple) -> None:
        """`offers` are the devices of its plugins, as (resource, id), handed out or not."""
        self._socket = socket
        self._pods = pods
        self.offers = offers
        self._server: grpc.aio.Server | None = None
        self._random = random.Random(1)

    async def start(self) -> None:
        """Serve."""
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
        """Go down at once and break calls in flight. The socket file stays."""
        if self._server is not None:
            await self._server.stop(grace=None)
            self._server = None

    async def answer_list(self, _version: str, _: bytes, __: Context) -> bytes:
        """List. All that v1alpha1 has is alike in v1."""
        return list_response(self._pods(), self._random)

    async def answer_allocatable(self, _: bytes, __: Context) -> bytes:
        """GetAllocatableResources."""
        return allocatable_response(tuple(self.offers()), self._random)
