"""A kubelet on a real unix socket that can restart, stall and fail, as recorded kubelets did (1.20.2 and 1.36.2).

The socket is bound beside its path and renamed into place. For grpc.aio's `stop` removes the file that it bound, but a
real kubelet leaves its socket behind when it stops.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import grpc.aio

from exporter._gen import podresources_v1_pb2 as v1
from exporter._gen import podresources_v1alpha1_pb2 as v1alpha1
from exporter.simulator.world import Container, Pod

Context = grpc.aio.ServicerContext[bytes, bytes]


def list_response(pods: Sequence[Pod], version: str = "v1", order: random.Random | None = None) -> bytes:
    """Pods as a serialised ListPodResourcesResponse. Each device has an entry of its own, as with NUMA topology.

    Init containers are left out, as the kubelet does. Other containers are listed with their devices even before they
    start. `order` shuffles the pods and the devices of each container, since a kubelet's answers have no stable order.
    """
    messages = v1 if version == "v1" else v1alpha1
    shuffled = order.sample if order else lambda items, _: list(items)
    body: bytes = messages.ListPodResourcesResponse(
        pod_resources=[
            messages.PodResources(
                namespace=pod.namespace,
                name=pod.name,
                containers=[
                    messages.ContainerResources(
                        name=container.name,
                        devices=[
                            messages.ContainerDevices(resource_name=resource, device_ids=[device_id])
                            for resource, device_id in shuffled(container.devices, len(container.devices))
                        ],
                        **({"dynamic_resources": _dynamic(container)} if version == "v1" else {}),
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
    return [
        v1.DynamicResource(
            claim_name=claim.name,
            claim_namespace=claim.namespace,
            claim_resources=[
                v1.ClaimResource(
                    driver_name=claim.driver,
                    pool_name=claim.pool,
                    device_name=claim.device,
                    cdi_devices=[v1.CDIDevice(name=name) for name in claim.cdi_names],
                    share_id=claim.share or None,
                )
            ],
        )
        for claim in container.claims
    ]


# How long the List of a starting kubelet was empty, and how long it then had only some of the pods, in 2 of 12 starts.
_EMPTY_SECONDS = (0.4, 2.0)
_PARTIAL_SECONDS = (0.03, 0.06)
_PARTIAL_STARTS = 2 / 12


class SimulatedKubelet:
    """Answers List of v1 and v1alpha1, and GetAllocatableResources of v1. `calls` counts the calls of List.

    `plugin_gone`: no device plugin is registered, so no device can be handed out, and those that were stay listed.
    `api_away`: the API server cannot be reached, so a kubelet that starts meanwhile lists only static pods. `failure`
    (a code and a text) or `raw_answer` is the answer where it is set.
    """

    def __init__(
        self,
        socket: Path,
        pods: Callable[[], Sequence[Pod]],
        *,
        versions: Sequence[str] = ("v1", "v1alpha1"),
        offers: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        """`offers` are the devices of its plugins, as (resource, id), handed out or not."""
        self.calls = self.calls_of_allocatable = 0
        self.api_away = False
        self.plugin_gone = False
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.raw_answer: bytes | None = None
        self.gone: frozenset[str] = frozenset()  # versions that are no longer served
        self._socket = socket
        self._pods = pods
        self.offers = offers
        self._versions = tuple(versions)
        self._server: grpc.aio.Server | None = None
        self._answering = asyncio.Event()
        self._answering.set()
        self._random = random.Random(1)
        self._heard_of_pods = False
        self._rejected: frozenset[str] = frozenset()
        self._empty_until = self._partial_until = 0.0

    async def start(self, *, empty_seconds: float = 0.0, partial_seconds: float = 0.0, plugin: bool = True) -> None:
        """Serve. For `empty_seconds` List has no pod, then for `partial_seconds` three quarters of them.

        Without the device `plugin`, the kubelet rejects pods that still need one of its devices: an init container has
        a device, or a container with a device does not run. Rejected pods stay unlisted after further restarts.
        """
        self._heard_of_pods = False
        self._empty_until = time.monotonic() + empty_seconds
        self._partial_until = self._empty_until + partial_seconds
        self.plugin_gone = not plugin
        if not plugin:
            self._rejected |= {pod.uid for pod in self._pods() if _needs_plugin(pod)}
        # no SO_REUSEPORT: one server for one socket file, as the kubelet has it
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        handlers = tuple(
            grpc.method_handlers_generic_handler(
                f"{version}.PodResourcesLister",
                {
                    "List": grpc.unary_unary_rpc_method_handler(self._handler(version)),
                    **(
                        {"GetAllocatableResources": grpc.unary_unary_rpc_method_handler(self._allocatable)}
                        if version == "v1"
                        else {}
                    ),
                },
            )
            for version in self._versions
        )
        self._server.add_generic_rpc_handlers(handlers)
        beside = self._socket.with_name(f"{self._socket.name}.new")
        self._server.add_insecure_port(f"unix:{beside}")
        await self._server.start()
        os.replace(beside, self._socket)  # noqa: PTH105 - atomic, and no await between

    async def stop(self) -> None:
        """Go down at once and break calls in flight. The socket file stays."""
        if self._server is not None:
            self._answering.set()
            await self._server.stop(grace=None)
            self._server = None

    async def restart(
        self,
        *,
        down_seconds: float,
        empty_seconds: float | None = None,
        partial_seconds: float | None = None,
        plugin: bool = True,
    ) -> None:
        """Go down, then up again with a List that is empty at first and then partial.

        None means a time drawn from those measured on real kubelets.
        """
        if empty_seconds is None:
            empty_seconds = self._random.uniform(*_EMPTY_SECONDS)
        if partial_seconds is None:
            partial = self._random.random() < _PARTIAL_STARTS
            partial_seconds = self._random.uniform(*_PARTIAL_SECONDS) if partial else 0.0
        await self.stop()
        await asyncio.sleep(down_seconds)
        await self.start(empty_seconds=empty_seconds, partial_seconds=partial_seconds, plugin=plugin)

    def stall(self) -> None:
        """Take calls and never answer, like a stopped process."""
        self._answering.clear()

    def resume(self) -> None:
        """Answer again; calls that wait get their answers."""
        self._answering.set()

    async def _allocatable(self, _: bytes, context: Context) -> bytes:
        self.calls_of_allocatable += 1
        await self._answering.wait()
        if "v1" in self.gone:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
        if self.failure:
            await context.abort(*self.failure)
        return allocatable_response(() if self.plugin_gone else tuple(self.offers()), self._random)

    def _handler(self, version: str) -> Callable[[bytes, Context], object]:
        async def answer(_: bytes, context: Context) -> bytes:
            self.calls += 1
            await self._answering.wait()
            pods = self._pods()
            if version in self.gone:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
            if self.failure:
                await context.abort(*self.failure)
            if self.raw_answer is not None:
                return self.raw_answer
            return list_response(self._listed(pods), version, self._random)

        return answer

    def _listed(self, now_running: Sequence[Pod]) -> list[Pod]:
        now = time.monotonic()
        if now < self._empty_until:
            return []
        if self.api_away and not self._heard_of_pods:
            return [pod for pod in now_running if pod.owner[0] == "Node"]
        self._heard_of_pods = True
        pods = [pod for pod in now_running if not pod.uid or pod.uid not in self._rejected]
        return pods[: len(pods) * 3 // 4] if now < self._partial_until else pods


def _needs_plugin(pod: Pod) -> bool:
    return any(container.devices for container in pod.init_containers) or any(
        container.devices and not container.running for container in pod.containers
    )
