"""The processes of a simulated node, in NVML, /proc and the kubelet's links to logs.

Each running container has a process for each of its devices.

Tests: tests/simulator/test_allocators.py.
"""

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from exporter.model.memo import Memo
from exporter.simulator.machine import RunningPod
from exporter.simulator.parts import Pids, Pod
from exporter.simulator.pods_api import container_id
from exporter.simulator.readings import most_bytes
from exporter.simulator.world import World

_FIRST_PID = 10_000
_HOST_NAMESPACE = "pid:[4026531836]"
_Key = tuple[str, str, str]  # pod UID, container and device


class SimulatedProcesses:
    """The files of processes below each of `roots`, written anew as pods come and go."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._pids: dict[_Key, int] = {}
        self._last_pid = _FIRST_PID
        self._shown = Memo(None)
        for root in roots:
            _put(root / "proc/1/cgroup", "0::/init.scope\n")
            _put(root / "proc/self/cgroup", "0::/user.slice/user-0.slice/session-1.scope\n")
            namespace = root / "proc/self/ns/pid"
            namespace.parent.mkdir(parents=True)
            namespace.symlink_to(_HOST_NAMESPACE)
            for folder in ("var/log/containers", "var/log/pods"):
                (root / folder).mkdir(parents=True)

    @property
    def pids(self) -> Pids:
        """The processes that are there."""
        return {(uid, device): pid for (uid, _, device), pid in self._pids.items()}

    def look(self, world: World) -> list[str]:
        """Bring the files up to date. Returns the lines of NVML's processes and samples (nvml.c)."""
        world.machine.advance()
        running = list(world.machine.running())
        uids = {(pod.namespace, pod.name): pod.uid for pod in world.pods}
        work_of = {(uids[work.namespace, work.pod], work.container, work.device_id): work for work in running}
        self._begin(sorted(work_of.keys() - self._pids.keys()), world.pods)
        for key in self._pids.keys() - work_of.keys():
            self._end(key)
        self._shown.of(self._link_logs, world.pods)
        return list(self._lines(world, work_of))

    def _begin(self, keys: Iterable[_Key], pods: Iterable[Pod]) -> None:
        by_uid = {pod.uid: pod for pod in pods}
        for key in keys:
            uid, container, _ = key
            self._last_pid += 1
            self._pids[key] = self._last_pid
            for root in self._roots:
                _show(root, self._last_pid, by_uid[uid], container)

    def _end(self, key: _Key) -> None:
        pid = self._pids.pop(key)
        for root in self._roots:
            shutil.rmtree(root / "proc" / str(pid))

    def _link_logs(self, pods: tuple[Pod, ...]) -> None:
        """Write the kubelet's links, whose names say whose log it is."""
        logs = dict(_logs_of(pods))
        for root in self._roots:
            folder = root / "var/log/containers"
            present = {path.name for path in folder.iterdir()}
            for name in present - logs.keys():
                (folder / name).unlink()
            for name in logs.keys() - present:
                (root / logs[name]).mkdir(parents=True, exist_ok=True)
                (folder / name).symlink_to(f"/{logs[name]}/0.log")

    def _lines(self, world: World, work_of: Mapping[_Key, RunningPod]) -> Iterator[str]:
        """Lines for the stand-in for NVML: each process with its bytes of memory, and its activity in percent."""
        now_us = time.monotonic_ns() // 1000
        most = most_bytes(world.gpus)
        places = {}  # GPU and instance, by device
        for gpu in world.gpus:
            places[gpu.uuid] = (gpu.index, -1)
            places |= {mig.device_id: (gpu.index, mig.instance_id) for mig in gpu.instances}
        for key, work in work_of.items():
            device = work.device_id
            if device not in places:
                continue  # an id of an older plugin, which NVML does not know
            gpu_index, instance = places[device]
            part = -1 if instance < 0 else 0
            used = int(work.memory * most[device])
            pid = self._pids[key]
            yield f"process {gpu_index} {instance} {part} {pid} c {used}"
            if instance < 0:
                yield f"sample {gpu_index} {pid} {now_us} {round(work.activity * 100)}"


def _logs_of(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """The name of the link to each running container's log, and the folder that has it."""
    for pod in pods:
        for container in pod.running:
            name = container.name
            names = f"{pod.namespace}{pod.name}{name}"
            if names.isprintable() and "/" not in names:  # a hostile name cannot be a file's
                link = f"{pod.name}_{pod.namespace}_{name}-{_id(pod, name)}.log"
                yield link, f"var/log/pods/{pod.namespace}_{pod.name}_{pod.uid}/{name}"


def _id(pod: Pod, container: str) -> str:
    return container_id(pod, container).removeprefix("containerd://")


def _show(root: Path, pid: int, pod: Pod, container: str) -> None:
    """Write a process' files in /proc: it is in the container's cgroup, and as old as the machine."""
    folder = root / "proc" / str(pid)
    of_pod = f"kubepods-pod{pod.uid.replace('-', '_')}.slice"
    _put(folder / "cgroup", f"0::/kubepods.slice/{of_pod}/cri-containerd-{_id(pod, container)}.scope\n")
    _put(folder / "stat", f"{pid} (python3) S 1 {pid} {pid} 0 -1 {' '.join(['0'] * 13)} 1 0 0\n")
    _put(folder / "cmdline", f"python3\0-m\0{pod.owner[1] or container}\0--pod={pod.name}\0")
    _put(folder / "status", "Name:\tpython3\nUid:\t1000\t1000\t1000\t1000\n")
    environment = next((one.environment for one in pod.containers if one.name == container), ())
    if environment:
        _put(folder / "environ", "".join(f"{name}={value}\0" for name, value in (("PATH", "/usr/bin"), *environment)))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
