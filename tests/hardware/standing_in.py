"""What stands in for Kubernetes on a bare machine: a kubelet's sockets, and containers' cgroups."""

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from uuid import uuid4

from exporter.simulator.kubelet import SimulatedKubelet
from exporter.simulator.parts import GPU_RESOURCE, SHARED_RESOURCE, Container, Pod
from exporter.simulator.pods_api import SimulatedPodsApi, container_id

HIERARCHIES = Path("/sys/fs/cgroup")
NAMESPACE = "hardware"
CONTAINER = "main"
_GONE_SECONDS = 5.0


def holder(name: str, uuid: str, share: int | None = None) -> Pod:
    """A pod that holds a GPU, or a share of it."""
    device = (GPU_RESOURCE, uuid) if share is None else (SHARED_RESOURCE, f"{uuid}::{share}")
    container = Container(name=CONTAINER, devices=(device,))
    return Pod(namespace=NAMESPACE, name=name, uid=str(uuid4()), containers=(container,))


class Kubelet:
    """A kubelet that lists the pods that it is given, at a socket for assignments and one for pods."""

    def __init__(self, folder: Path, uuids: Iterable[str]) -> None:
        self.pods: tuple[Pod, ...] = ()
        self.resources_socket = folder / "kubelet.sock"
        self.pods_socket = folder / "pods-api.sock"
        offers = tuple((GPU_RESOURCE, uuid) for uuid in uuids)
        self._kubelet = SimulatedKubelet(self.resources_socket, lambda: self.pods, offers=lambda: offers)
        self._pods_api = SimulatedPodsApi(self.pods_socket, lambda: self.pods)

    async def start(self) -> None:
        """Start to serve."""
        await self._kubelet.start()
        await self._pods_api.start()

    async def stop(self) -> None:
        """Stop."""
        await self._kubelet.stop()
        await self._pods_api.stop()


class Cgroups:
    """The cgroups of containers, as containerd makes them for systemd's driver, in version 2 or in version 1's `pids`.

    `why_not` says why there are none; "" if they can be made.
    """

    def __init__(self) -> None:
        self._made: list[Path] = []
        self._hierarchy = HIERARCHIES if (HIERARCHIES / "cgroup.controllers").exists() else HIERARCHIES / "pids"
        self.why_not = self._tried()

    def _tried(self) -> str:
        if not (self._hierarchy / "cgroup.procs").exists():
            return f"{self._hierarchy} is no cgroup"
        try:
            self._make(self._hierarchy / "kubepods.slice")
        except OSError as error:
            return f"no cgroup can be made: {error.strerror} ({self._hierarchy})"
        return ""

    def _make(self, folder: Path) -> None:
        """Make a cgroup and those above it. Raises OSError: it cannot be made.

        Who else makes cgroups of these names may make or remove those above it at the same time.
        """
        until = time.monotonic() + _GONE_SECONDS
        while not folder.exists():
            for part in reversed((folder, *folder.parents)):
                try:
                    part.mkdir()
                except FileExistsError:
                    continue
                except FileNotFoundError:
                    if time.monotonic() > until:
                        raise
                    break
                self._made.append(part)

    def enter(self, pid: int, pod: Pod) -> None:
        """Move a process into the container of a pod. Raises OSError: it cannot be moved."""
        of_pod = f"kubepods-burstable-pod{pod.uid.replace('-', '_')}.slice"
        scope = f"cri-containerd-{container_id(pod, CONTAINER).removeprefix('containerd://')}.scope"
        folder = self._hierarchy / "kubepods.slice" / "kubepods-burstable.slice" / of_pod / scope
        self._make(folder)
        (folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> list[str]:
        """Remove all that were made, once their processes have ended. Returns what is left, but for others' parents."""
        until = time.monotonic() + _GONE_SECONDS
        left = set(self._made)
        while left and time.monotonic() < until:
            for folder in sorted(left, reverse=True):
                with contextlib.suppress(OSError):
                    folder.rmdir()
            left = {folder for folder in left if folder.exists() and not _has_others(folder, left)}
            if left:
                time.sleep(0.05)
        return sorted(str(folder) for folder in left)


def _has_others(folder: Path, ours: set[Path]) -> bool:
    """Whether somebody else has made a cgroup in it, such as a kubelet that runs here."""
    return any(below.is_dir() and below not in ours for below in folder.iterdir())
