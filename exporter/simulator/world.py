"""A made-up GPU node: GPUs, MIG instances and shares, and pods that come and go on them.

Everything is drawn from one seed, so that a run can be repeated. Nothing here does I/O: the simulated kubelet, APIs and
dcgm-exporter show this world to their clients.
"""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from exporter.simulator.machine import Machine
from exporter.simulator.maker import SERVICES, TEAMS, Maker, Teams
from exporter.simulator.parts import (
    DRA_DRIVER,
    DRA_POOL,
    GPU_RESOURCE,
    SHARED_RESOURCE,
    Container,
    Gpu,
    Instance,
    Pod,
)
from exporter.simulator.profiles import SMALLEST

# the parts that a world is made of are used together with it
__all__ = [
    "DRA_DRIVER",
    "DRA_POOL",
    "GPU_RESOURCE",
    "SHARED_RESOURCE",
    "Container",
    "Gpu",
    "Instance",
    "Pod",
    "World",
]

SMALL_CUT = (SMALLEST,) * 7
# The share of the node's slots that pods hold: a step adds one below the first, and takes none away above it.
LEAST_HELD, MOST_HELD = 0.6, 0.9
CRASHES = 0.03  # how often a step of life is a crash
# an application's errors (13, 31, 43), and an uncorrected memory error that was contained (94)
_XIDS = (13, 31, 31, 43, 94)


class World:
    """The node. `pods` and `gpus` are exchanged as a whole, so that a reader never sees half a change.

    `machine` is the hardware under the load of the pods. `clock` tells real time, in nanoseconds, and `speed` how much
    faster the pods live.
    """

    def __init__(
        self,
        *,
        gpus: int = 8,
        shared: int = 0,
        mig: int = 0,
        claims: int = 0,
        units: int = 0,
        cut: Sequence[str] = SMALL_CUT,
        seed: int = 1,
        speed: float = 1.0,
        teams: Teams = TEAMS,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Of the `gpus`, `shared` are time-sliced into 4 shares and `mig` are `cut` into instances; the rest is whole.

        Of the whole GPUs the first `claims` are handed out by DRA, and the next `units` by gpu-manager. `teams` say
        whose pods come.
        """
        self._random = random.Random(seed)
        self._make = Maker(self._random, teams)
        self.machine = Machine(seed=seed, speed=speed, clock=clock)
        self._pods: tuple[Pod, ...] = ()
        uuids = [f"GPU-{self._make.uuid()}" for _ in range(gpus)] if units else []
        in_units = self._make.units(uuids[claims : claims + units])
        self._gpus = tuple(
            Gpu(
                index=index,
                uuid=(uuid := uuids[index] if uuids else f"GPU-{self._make.uuid()}"),
                units=in_units.get(uuid, ()),
                shared=gpus - mig - shared <= index < gpus - mig,
                claimed=index < claims,
                instances=self._make.instances(cut) if index >= gpus - mig else (),
            )
            for index in range(gpus)
        )
        # what is there from the start came before the machine did: the machine sees it once, as a whole
        self._pods = (self._make.pod("kube-system", "node-agent", (Container(name="agent"),), kind="DaemonSet"),)
        while self.used_share < LEAST_HELD and (pod := self._new_pod()):
            self._pods += (pod,)
        self.machine.change(self._gpus, self._pods)

    @property
    def pods(self) -> tuple[Pod, ...]:
        """All pods of the node."""
        return self._pods

    @pods.setter
    def pods(self, pods: tuple[Pod, ...]) -> None:
        self._pods = pods
        self.machine.change(self._gpus, pods)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs of the node."""
        return self._gpus

    @gpus.setter
    def gpus(self, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = gpus
        self.machine.change(gpus, self._pods)

    @property
    def of_kubelet(self) -> tuple[Pod, ...]:
        """The pods that the kubelet knows, ended pods included until they are removed."""
        return tuple(pod for pod in self.pods if pod.is_acknowledged)

    @property
    def listed(self) -> tuple[Pod, ...]:
        """The pods that the kubelet's List names."""
        return tuple(pod for pod in self.of_kubelet if not pod.has_ended)

    @property
    def used_share(self) -> float:
        """The part of the node's GPUs that pods hold, 0 to 1. Of a GPU in parts, as many as are held."""
        free = dict(self._free())
        parts = [len(free.get(gpu.uuid, ())) / len(gpu.slots) for gpu in self._gpus]
        return 1.0 - sum(parts) / len(parts) if parts else 1.0

    def holds(self, device_id: str) -> bool:
        """Whether a pod holds this device, or a share of it."""
        return any(held == device_id or held.startswith(f"{device_id}::") for held in self._held())

    def step(self) -> None:
        """A pod with devices goes, of those that have been here longest, or a new pod comes.

        The node is never left with less than LEAST_HELD of its GPUs held, as long as there is anything to hold.
        """
        owners = [pod for pod in self.pods if pod.devices]
        if owners and (self.used_share > MOST_HELD or self._random.random() < 0.5):  # noqa: PLR2004
            self.remove(self._random.choice(owners[: len(owners) // 2 + 1]))
        elif pod := self._new_pod():
            self.pods += (pod,)
        self._fill()

    def live(self) -> None:
        """A step of life: what has crashed goes or starts again; then a pod crashes, or comes, or goes."""
        self.pods = tuple(_running(pod) for pod in self.pods if not pod.has_ended)
        owners = [pod for pod in self.pods if pod.devices]
        if owners and self.used_share >= LEAST_HELD and self._random.random() < CRASHES:
            self.crash(self._random.choice(owners), self._random.choice(_XIDS))
        else:
            self.step()

    def crash(self, pod: Pod, xid: int) -> Pod:
        """A pod's application dies, and its first GPU reports why. Returns the pod's new state.

        What serves waits for its next start with its devices; all else has failed, and gives them back.
        """
        uuid = next(gpu.uuid for gpu in self.gpus if not set(pod.devices).isdisjoint(_ids(gpu)))
        self.machine.add_xid(uuid, xid)
        if pod.owner[1] not in SERVICES:
            return self.end(pod, "Failed")
        waiting = tuple(replace(container, running=False) for container in pod.containers)
        return self._change(pod, replace(pod, containers=waiting))

    def recut(self, gpu: Gpu, cut: Sequence[str]) -> Gpu:
        """A GPU is cut anew, or made whole again by an empty cut; pods that hold it go. Returns the GPU's new state.

        Instances get new UUIDs, but may have the ids (GPU_I_ID) of those before.

        Raises:
            ValueError: no GPU can be cut like this.
        """
        new = replace(gpu, instances=self._make.instances(cut), shared=False, claimed=False, units=())
        self.pods = tuple(pod for pod in self.pods if set(pod.devices).isdisjoint(_ids(gpu)))
        self.gpus = tuple(new if one is gpu else one for one in self.gpus)
        return new

    def replace_all(self) -> None:
        """Every pod goes, and a pod of another name takes its devices."""
        self.pods = tuple(
            self._make.pod(pod.namespace, pod.name.rpartition("-")[0], pod.containers) for pod in self.pods
        )

    def recreate(self, old: Pod, *, is_acknowledged: bool = True) -> Pod:
        """A pod is made anew under its old name, as a StatefulSet does. Returns the new pod.

        Without `is_acknowledged` the old pod was deleted by force, and the kubelet knows neither of that nor of the
        new pod.
        """
        uid = self._make.uid(old.namespace, old.name)
        return self._change(old, replace(old, uid=uid, phase="Running", is_acknowledged=is_acknowledged))

    def acknowledge(self, pod: Pod) -> Pod:
        """The kubelet learns of a pod. Returns the pod's new state."""
        return self._change(pod, replace(pod, is_acknowledged=True))

    def end(self, pod: Pod, phase: str = "Succeeded") -> Pod:
        """A pod ends and gives its devices back, but stays until it is removed. Returns the pod's new state."""
        return self._change(pod, replace(pod, phase=phase))

    def _change(self, old: Pod, new: Pod) -> Pod:
        self.pods = tuple(new if pod is old else pod for pod in self.pods)
        return new

    def relabel(self, pod: Pod, **labels: str) -> None:
        """Add labels to a pod, or change those that it has."""
        self._change(pod, replace(pod, labels=tuple({**dict(pod.labels), **labels}.items())))

    def inventory(self) -> dict[str, object]:
        """The GPUs and their MIG instances, in the form of --inventory.file."""
        return {
            "gpus": [
                {
                    "uuid": gpu.uuid,
                    "index": gpu.index,
                    "mig": [
                        {"uuid": mig.device_id, "instance_id": mig.instance_id, "profile": mig.profile}
                        for mig in gpu.instances
                    ],
                }
                for gpu in self.gpus
            ]
        }

    def remove(self, gone: Pod) -> None:
        """A pod goes; the same object must be in `pods`."""
        self.pods = tuple(pod for pod in self.pods if pod is not gone)

    def _held(self) -> Iterator[str]:
        names = {gpu.claim_device: gpu.uuid for gpu in self.gpus}
        for pod in self.pods:
            for container in () if pod.has_ended else pod.containers:
                for _, device_id in container.devices:
                    yield device_id
                for claim in container.claims:
                    yield names[claim.device]
                yield from container.chosen

    def _free(self) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        """The slots that no pod holds, by GPU."""
        held = set(self._held())
        for gpu in self._gpus:
            slots = [] if gpu.claimed and gpu.uuid in held else [slot for slot in gpu.slots if slot[1] not in held]
            if slots:
                yield gpu.uuid, slots

    def _fill(self) -> None:
        """Pods come until enough of the node is held."""
        while self.used_share < LEAST_HELD and (pod := self._new_pod()):
            self.pods += (pod,)

    def _new_pod(self) -> Pod | None:
        """A pod with devices that nobody holds; None where there are none."""
        return self._make.pod_with([slot for _, slots in self._free() for slot in slots])


def _ids(gpu: Gpu) -> set[str]:
    """What pods may hold of a GPU."""
    return {gpu.uuid, *(device_id for _, device_id in gpu.slots)}


def _running(pod: Pod) -> Pod:
    if all(container.running for container in pod.containers):
        return pod
    return replace(pod, containers=tuple(replace(container, running=True) for container in pod.containers))
