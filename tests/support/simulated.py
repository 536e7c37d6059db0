"""The simulated node with all that tests do to it: its kubelet stalls, fails and restarts, its pods are made anew."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import grpc
import grpc.aio
from aiohttp import web

from exporter.simulator import dcgm, driver_files, failure, kubelet, pods_api, simulated_node, world
from exporter.simulator.allocators.simulated_allocator import HELPERS
from exporter.simulator.dcgm_pages import SimulatedFamily
from exporter.simulator.fail_flag import NEVER, Fails
from exporter.simulator.parts import (
    DRA_DRIVER,
    DRA_POOL,
    GPU_RESOURCE,
    H100,
    PROFILES,
    SHARED_RESOURCE,
    SMALLEST,
    Container,
    Instance,
    Pod,
    SimulatedGpu,
)
from tests.support.simulated_api import REPUBLISHED_SECONDS, SimulatedApi

__all__ = [
    "DRA_DRIVER",
    "DRA_POOL",
    "GPU_RESOURCE",
    "SHARED_RESOURCE",
    "Container",
    "Instance",
    "Pod",
    "SimulatedDcgm",
    "SimulatedGpu",
    "SimulatedKubelet",
    "SimulatedNode",
    "SimulatedPodsApi",
    "World",
]
ENDS_STEP, REPAIRED_STEP, RETAKEN_STEP = 2, 12, 13
# How long the List of a starting kubelet was empty, and how long it then had only some of the pods, in 2 of 12 starts.
_EMPTY_SECONDS = (0.4, 2.0)
_PARTIAL_SECONDS = (0.03, 0.06)
_PARTIAL_STARTS = 2 / 12


# The share of the node's slots that pods hold: a step adds one below the first, and takes none away above it.
LEAST_HELD, MOST_HELD = 0.6, 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class Teams:
    """Whose pods come to a node: the namespaces, and the workloads, each with the name of its pods' first container."""

    namespaces: Sequence[str] = ("ml-research", "serving", "team-vision", "notebooks")
    workloads: Mapping[str, str]


TEAMS = Teams(
    workloads={
        "train-resnet": "trainer",
        "finetune-llm": "worker",
        "serve-embeddings": "server",
        "render": "main",
        "jupyter": "notebook",
        "eval-nightly": "eval",
    }
)


def instance_ids(cut: Sequence[str]) -> list[int]:
    """The GPU_I_ID of each instance of a cut. Raises ValueError: no GPU can be cut like this."""
    profiles = [PROFILES[name] for name in cut if name in PROFILES]
    card = profiles[0].card if profiles else H100
    if (
        len(profiles) < len(cut)
        or any(profile.card != card for profile in profiles)
        or sum(profile.slices for profile in profiles) > card.slices
        or sum(profile.memory_slices for profile in profiles) > card.memory_slices
        or any(cut.count(name) > PROFILES[name].most for name in cut)
    ):
        raise ValueError(f"no GPU can be cut into {', '.join(cut)}")
    taken: list[int] = []
    for profile in profiles:
        taken.append(next(number for number in range(profile.first_id, 99) if number not in taken))
    return taken


class World(world.World):
    """A world whose GPUs and pods are changed by hand, or come and go, one in each `step` or `live`."""

    crashes = 0.03  # how often a step of life is a crash

    def __init__(self, *, teams: Teams = TEAMS, cut: Sequence[str] = (SMALLEST,) * 7, **more: Any) -> None:
        """`teams` say whose pods come, `cut` is that of the GPUs that are cut from the start; the rest as before."""
        self._teams, self._cut_first = teams, cut
        super().__init__(**more)

    def _instances(self) -> tuple[Instance, ...]:
        return self._instances_of(self._cut_first)

    def _instances_of(self, cut: Sequence[str]) -> tuple[Instance, ...]:
        """New MIG instances. Raises ValueError: no GPU can be cut like this."""
        return tuple(
            Instance(device_id=f"MIG-{self.make.uuid()}", instance_id=number, profile=profile)
            for number, profile in zip(instance_ids(cut), cut, strict=True)
        )

    def _fill(self) -> None:
        while self.used_share < LEAST_HELD and (pod := self._new_pod()):
            self._pods += (pod,)

    def _new_pod(self) -> Pod | None:
        return self.pod_with([slot for _, slots in self.free() for slot in slots])

    def pod_with(self, free: Sequence[tuple[str, str]]) -> Pod | None:
        """A pod that holds something of what is free, each as (resource, device id); None where nothing is."""
        if not free:
            return None
        devices = self.make.some_of(free)
        workload = self._random.choice(sorted(self._teams.workloads))
        namespace = self._random.choice(self._teams.namespaces)
        containers = self.make.containers(namespace, self._teams.workloads[workload], devices)
        return self.make.pod(namespace, workload, containers)

    def step(self) -> None:
        """One of the oldest pods with devices goes, or a new one comes. LEAST_HELD of the GPUs stay held if any can."""
        owners = [pod for pod in self.pods if pod.devices]
        if owners and (self.used_share > MOST_HELD or self._random.random() < 0.5):
            self.remove(self._random.choice(owners[: len(owners) // 2 + 1]))
        elif pod := self._new_pod():
            self.pods += (pod,)
        while self.used_share < LEAST_HELD and (pod := self._new_pod()):
            self.pods += (pod,)

    def live(self) -> None:
        """A step of life: what has crashed goes or starts again; then a pod crashes, or comes, or goes."""
        self.recover()
        owners = [pod for pod in self.pods if pod.devices]
        if owners and self.used_share >= LEAST_HELD and self._random.random() < self.crashes:
            self.crash(self._random.choice(owners), self._random.choice(world.XIDS))
        else:
            self.step()

    def recut(self, gpu: SimulatedGpu, cut: Sequence[str]) -> SimulatedGpu:
        """A GPU is cut anew, or made whole again by an empty cut; pods that hold it go. Returns the GPU's new state.

        Instances get new UUIDs, but may have the ids (GPU_I_ID) of those before.

        Raises:
            ValueError: no GPU can be cut like this.
        """
        new = replace(gpu, instances=self._instances_of(cut), shared=False, claimed=False, units=())
        self.pods = tuple(pod for pod in self.pods if set(pod.devices).isdisjoint(world.ids_of(gpu)))
        self.gpus = tuple(new if one is gpu else one for one in self.gpus)
        return new

    def replace_all(self) -> None:
        """Every pod goes, and a pod of another name takes its devices."""
        self.pods = tuple(
            self.make.pod(pod.namespace, pod.name.rpartition("-")[0], pod.containers) for pod in self.pods
        )

    def recreate(self, old: Pod, *, is_acknowledged: bool = True) -> Pod:
        """A pod is made anew under its old name, as a StatefulSet does. Returns the new pod.

        Without `is_acknowledged` the old pod was deleted by force, and the kubelet knows neither of that nor of the
        new pod.
        """
        uid = self.make.uid(old.namespace, old.name)
        return self.change(old, replace(old, uid=uid, phase="Running", is_acknowledged=is_acknowledged))

    def remake(self, old: Pod) -> Pod:
        """A pod of an allocator is made anew under its old name: other GPUs are chosen for it. Returns the new pod."""
        name = next(container.name for container in old.containers if container.name not in HELPERS)
        self.remove(old)
        seats = self.make.some_of([slot for _, slots in self.free() for slot in slots if slot in self._seats])
        made = self.make.pod(old.namespace, old.name, self.make.containers(old.namespace, name, seats), old.owner[0])
        made = replace(made, name=old.name, owner=old.owner, work=old.work)
        self.pods += (made,)
        return made

    @property
    def _seats(self) -> set[tuple[str, str]]:
        return {seat for gpu in self.gpus for seat in gpu.seats}

    def acknowledge(self, pod: Pod) -> Pod:
        """The kubelet learns of a pod. Returns the pod's new state."""
        return self.change(pod, replace(pod, is_acknowledged=True))

    def relabel(self, pod: Pod, **labels: str) -> None:
        """Add labels to a pod, or change those that it has."""
        self.change(pod, replace(pod, labels=tuple({**dict(pod.labels), **labels}.items())))

    def energy_mj(self, uuid: str) -> int:
        """What a GPU has drawn since the driver was loaded, until now, in whole millijoules."""
        return self.machine.boards[uuid].energy_mj(self.machine.advance())

    def holds(self, device_id: str) -> bool:
        """Whether a pod holds this device, or a share of it."""
        of_claims = {device: uuid for gpu in self.gpus for device, uuid in gpu.ids_of_claims.items()}
        return any(of_claims.get(held, held).partition("::")[0] == device_id for held in self.held())


class GpuFailure(failure.GpuFailure):
    """Steps of life after the GPU is lost, its pods fail and others come; then it is well again, and held again."""

    def __init__(self, world: World, *arguments: Any, **more: Any) -> None:
        super().__init__(world, *arguments, **more)
        self._of = world
        self._steps = 0

    def live(self) -> None:
        """A step of life has passed."""
        self._steps += bool(self.gpu)
        if self._steps == ENDS_STEP:
            for pod in self.end_holders():
                self._replace(pod)
        elif self._steps == REPAIRED_STEP:
            self.repair()
        elif self._steps == RETAKEN_STEP and (new := self._of.pod_with(dict(self._of.free()).get(self.gpu, ()))):
            self._of.pods += (new,)

    def _replace(self, failed: Pod) -> None:
        """The pod's controller makes another, where there is as much free of what it held."""
        first, *others = failed.containers
        resources = [resource for resource, _ in first.devices]
        free = [slot for _, slots in self._of.free() for slot in slots if slot[0] in resources]
        if resources and len(free) >= len(resources):
            first = replace(first, devices=tuple(free[: len(resources)]), ailing=())
            self._of.pods += (self._of.make.pod(failed.namespace, failed.owner[1], (first, *others)),)


class SimulatedKubelet(kubelet.SimulatedKubelet):
    """Counts the `calls` of List. It can restart, stall and fail, as recorded kubelets did (1.20.2 and 1.36.2).

    `plugin_gone`: no device plugin is registered, so no device can be handed out, and those that were stay listed.
    `api_away`: the API server cannot be reached, so a kubelet that starts meanwhile lists only static pods. `failure`
    (a code and a text) or `raw_answer` is the answer where it is set. `gone` are versions that are no longer served.
    """

    def __init__(
        self,
        socket: Path,
        pods: Callable[[], Sequence[Pod]],
        *,
        versions: Sequence[str] = ("v1", "v1alpha1"),
        offers: Callable[[], Sequence[tuple[str, str]]] = tuple,
    ) -> None:
        super().__init__(socket, pods, offers=offers)
        self.versions = tuple(versions)
        self.calls = self.calls_of_allocatable = 0
        self.api_away = False
        self.plugin_gone = False
        self.failure: tuple[grpc.StatusCode, str] | None = None
        self.raw_answer: bytes | None = None
        self.gone: frozenset[str] = frozenset()
        self._answering = asyncio.Event()
        self._answering.set()
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
        await super().start()

    async def stop(self) -> None:
        self._answering.set()
        await super().stop()

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

    async def answer_list(self, version: str, _: bytes, context: kubelet.Context) -> bytes:
        self.calls += 1
        await self._answering.wait()
        pods = self._pods()  # a process of its own reads what it is to do with them
        self.prepared.look(pods)
        await self._refuse(version, context)
        if self.raw_answer is not None:
            return self.raw_answer
        listed = self._listed(pods)
        if version != "v1":  # it knows no claims
            listed = [replace(pod, containers=tuple(map(_without_claims, pod.containers))) for pod in listed]
        return kubelet.list_response(listed, self._random, self.prepared.times)

    async def answer_allocatable(self, _: bytes, context: kubelet.Context) -> bytes:
        self.calls_of_allocatable += 1
        await self._answering.wait()
        await self._refuse("v1", context)
        return kubelet.allocatable_response(() if self.plugin_gone else tuple(self.offers()), self._random)

    async def _refuse(self, version: str, context: kubelet.Context) -> None:
        if version in self.gone:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "unknown service")
        if self.failure:
            await context.abort(*self.failure)

    def _listed(self, now_running: Sequence[Pod]) -> list[Pod]:
        now = time.monotonic()
        if now < self._empty_until:
            return []
        if self.api_away and not self._heard_of_pods:
            return [pod for pod in now_running if pod.owner[0] == "Node"]
        self._heard_of_pods = True
        pods = [pod for pod in now_running if not pod.uid or pod.uid not in self._rejected]
        return pods[: len(pods) * 3 // 4] if now < self._partial_until else pods


def _without_claims(container: Container) -> Container:
    return replace(container, claims=())


def _needs_plugin(pod: Pod) -> bool:
    return any(container.devices for container in pod.init_containers) or any(
        container.devices and not container.running for container in pod.containers
    )


class SimulatedPodsApi(pods_api.SimulatedPodsApi):
    """`streams` counts the watches.

    `api_away`: the API server cannot be reached, so a kubelet that starts meanwhile knows only static pods. These were
    not recorded: read from files, they are known at once.
    """

    def __init__(
        self,
        socket: Path,
        pods: Callable[[], Sequence[Pod]],
        *,
        version: str = "v1alpha1",
        deleted_after_seconds: float = 1.5,
    ) -> None:
        super().__init__(socket, pods)
        self.version, self.deleted_after_seconds = version, deleted_after_seconds
        self.streams = 0
        self.api_away = False
        self._heard_of_pods = False
        self._empty_until = -inf

    async def start(self, *, empty_seconds: float = 0.0) -> None:
        """Serve. For `empty_seconds` the kubelet has just started, and knows only static pods."""
        self._heard_of_pods = False
        self._empty_until = time.monotonic() + empty_seconds
        await super().start()

    def _is_starting(self) -> bool:
        if time.monotonic() < self._empty_until or (self.api_away and not self._heard_of_pods):
            return True
        self._heard_of_pods = True
        return False

    def pods(self) -> Sequence[Pod]:
        return [pod for pod in super().pods() if pod.is_static or not self._is_starting()]

    def stream(self) -> pods_api.Stream:
        self.streams += 1
        return _StreamOfAStart(self.deleted_after_seconds) if self._is_starting() else super().stream()


class _StreamOfAStart(pods_api.Stream):
    """Of a kubelet that has just started: INITIAL_SYNC_COMPLETE comes first, and its pods come later.

    It learns only now which of them have ended: each of these is ADDED and right after DELETED.
    """

    def events(self, now_known: Sequence[Pod]) -> Iterator[tuple[float, bytes]]:
        self._delete_at |= {pod.uid: 0.0 for pod in now_known if pod.has_ended and pod.uid not in self._sent}
        yield from super().events(now_known)


class SimulatedDcgm(dcgm.SimulatedDcgm):
    """Calls `failure` for the answer where that is set; counts `fetches`.

    `families`, where they are given, are in place of those of the generation and the counters file.
    """

    def __init__(self, world: World, *, families: Sequence[SimulatedFamily] = (), **more: Any) -> None:
        super().__init__(world, **more)
        self.families = tuple(families) or self.families
        self.fetches = 0
        self.failure: Callable[[web.Request], web.StreamResponse] | None = None

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.fetches += 1
        return self.failure(request) if self.failure else await super().answer(request)


class SimulatedNode(simulated_node.SimulatedNode):
    """A node whose kubelet and API do as they are told."""

    world: World
    dcgm: SimulatedDcgm
    kubelet: SimulatedKubelet
    pods_api: SimulatedPodsApi
    api: SimulatedApi
    failure: GpuFailure

    def __init__(
        self,
        world: World,
        host_name: str = "gpu-node-1",
        generation: str = "3",
        *,
        fails: Fails = NEVER,
        **of_dcgm: Any,
    ) -> None:
        super().__init__(world, host_name, generation, fails=fails)
        self.dcgm = SimulatedDcgm(world, host_name=host_name, generation=generation, **of_dcgm)
        self.kubelet = SimulatedKubelet(self.socket, self.listed, offers=self.kubelet.offers)
        self.pods_api = SimulatedPodsApi(self.pods_socket, lambda: world.of_kubelet)
        self.api = SimulatedApi(world, node_name=host_name)
        self.failure = GpuFailure(world, self.kernel_log, after_seconds=fails.gpu_seconds)

    async def start(self, *, live: Callable[[], None] | None = None, step_seconds: float = 0.0) -> None:
        """Start all servers. With `step_seconds` pods come and go: by `live`, or as this node has it."""
        await super().start(live=(live or self.live) if step_seconds else None, step_seconds=step_seconds)

    def live(self) -> None:
        """A step of life."""
        self.world.live()
        self.failure.live()

    async def restart_dcgm(self) -> None:
        """dcgm-exporter stops, and starts anew at the same address. The driver goes on counting meanwhile."""
        await self.dcgm.stop()
        self.dcgm.begin_anew()
        await self.dcgm.start(port=urlsplit(self.url).port or 0)

    async def restart_kubelet(
        self,
        *,
        down_seconds: float = 0.2,
        empty_seconds: float = 0.7,
        partial_seconds: float = 0.0,
        slices_away_seconds: float = REPUBLISHED_SECONDS,
    ) -> None:
        """Stop and start the kubelet on both its sockets, and delete the ResourceSlices as a starting kubelet does."""
        await asyncio.gather(self.kubelet.stop(), self.pods_api.stop())
        await asyncio.sleep(down_seconds)
        self.api.wipe_slices(away_seconds=slices_away_seconds)
        await self.kubelet.start(empty_seconds=empty_seconds, partial_seconds=partial_seconds)
        await self.pods_api.start(empty_seconds=empty_seconds)

    def recut(self, gpu: SimulatedGpu, cut: Sequence[str]) -> SimulatedGpu:
        """Cut a GPU anew, in the CDI spec, the inventory file and to NVML too; see World.recut."""
        new = self.world.recut(gpu, cut)
        driver_files.write_spec(self.root, self.world.gpus)
        self.write_inventory()
        return new
