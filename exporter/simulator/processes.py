"""A simulated node's processes, one a running container and device: in NVML, /proc, and the kubelet's links to logs."""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.simulator.machine import RunningPod
from exporter.simulator.parts import Pod
from exporter.simulator.pods_api import container_id
from exporter.simulator.readings import most_bytes
from exporter.simulator.world import World

_FIRST_PID = 10_000
_HOST_NAMESPACE = "pid:[4026531836]"
_Container = tuple[Pod, str]


class SimulatedProcesses:
    """Files below each of `roots`, written anew as pods come and go."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._pids: dict[tuple[str, str, str], int] = {}  # by pod UID, container and device
        self._last_pid = _FIRST_PID
        self._shown: tuple[Pod, ...] = ()
        for root in roots:
            _put(root / "proc/1/cgroup", "0::/init.scope\n")
            _put(root / "proc/self/cgroup", "0::/user.slice/user-0.slice/session-1.scope\n")
            namespace = root / "proc/self/ns/pid"
            namespace.parent.mkdir(parents=True)
            namespace.symlink_to(_HOST_NAMESPACE)
            for folder in ("var/log/containers", "var/log/pods"):
                (root / folder).mkdir(parents=True)

    @property
    def pids(self) -> Mapping[tuple[str, str], int]:
        """The processes by the UID of the pod and the device, as the machine names it."""
        return {(uid, device): pid for (uid, _, device), pid in self._pids.items()}

    def look(self, world: World) -> list[str]:
        """Bring the files up to date. Returns the lines of NVML's processes and samples (nvml.c)."""
        world.machine.advance()
        running = list(world.machine.running())
        pods = {(pod.namespace, pod.name): pod for pod in world.pods}
        uids = {(each, pods[each.namespace, each.pod].uid) for each in running}
        holding = {(uid, each.container, each.device_id) for each, uid in uids}
        for key in sorted(holding - self._pids.keys()):
            self._last_pid += 1
            self._pids[key] = self._last_pid
            pod = next(pod for pod in world.pods if pod.uid == key[0])
            for root in self._roots:
                _show(root, self._last_pid, pod, key[1])
        for key in self._pids.keys() - holding:
            pid = self._pids.pop(key)
            for root in self._roots:
                shutil.rmtree(root / "proc" / str(pid))
        self._follow(world.pods)
        return list(self._lines(world, running, pods))

    def _follow(self, pods: tuple[Pod, ...]) -> None:
        if pods is self._shown:
            return
        self._shown = pods
        now = {_log(pod, container): (pod, container) for pod, container in _containers(pods)}
        for root in self._roots:
            folder = root / "var/log/containers"
            there = {path.name for path in folder.iterdir()}
            for name in there - now.keys():
                (folder / name).unlink()
            for name in now.keys() - there:
                pod, container = now[name]
                logs = f"var/log/pods/{pod.namespace}_{pod.name}_{pod.uid}/{container}"
                (root / logs).mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(f"/{logs}/0.log")

    def _lines(self, world: World, running: Iterable[RunningPod], pods: dict[tuple[str, str], Pod]) -> Iterator[str]:
        now_us = time.monotonic_ns() // 1000
        most = most_bytes(world.gpus)
        of_device = {gpu.uuid: (gpu.index, -1) for gpu in world.gpus}
        of_device |= {mig.device_id: (gpu.index, mig.instance_id) for gpu in world.gpus for mig in gpu.instances}
        for each in running:
            if each.device_id not in of_device:
                continue  # an id of an older plugin's, which NVML does not have
            gpu_index, instance = of_device[each.device_id]
            pid = self._pids[pods[each.namespace, each.pod].uid, each.container, each.device_id]
            part = -1 if instance < 0 else 0
            yield f"process {gpu_index} {instance} {part} {pid} c {int(each.memory * most[each.device_id])}"
            if instance < 0:
                yield f"sample {gpu_index} {pid} {now_us} {round(each.activity * 100)}"


def _containers(pods: Iterable[Pod]) -> Iterator[_Container]:
    for pod in pods:
        for container in () if pod.has_ended else pod.containers:
            names = f"{pod.namespace}{pod.name}{container.name}"
            if names.isprintable() and "/" not in names:  # of a hostile name no file can be made
                yield pod, container.name


def _id(pod: Pod, container: str) -> str:
    return container_id(pod, container).removeprefix("containerd://")


def _log(pod: Pod, container: str) -> str:
    return f"{pod.name}_{pod.namespace}_{container}-{_id(pod, container)}.log"


def _show(root: Path, pid: int, pod: Pod, container: str) -> None:
    """A process as /proc has it: in the container's cgroup, and as old as the machine."""
    folder = root / "proc" / str(pid)
    of_pod = f"kubepods-pod{pod.uid.replace('-', '_')}.slice"
    _put(folder / "cgroup", f"0::/kubepods.slice/{of_pod}/cri-containerd-{_id(pod, container)}.scope\n")
    _put(folder / "stat", f"{pid} (python3) S 1 {pid} {pid} 0 -1 {' '.join(['0'] * 13)} 1 0 0\n")
    _put(folder / "cmdline", f"python3\0-m\0{pod.owner[1] or container}\0--pod={pod.name}\0")
    _put(folder / "status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
