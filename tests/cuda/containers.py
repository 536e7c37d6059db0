"""Containers without a container runtime: a program in a root, a PID namespace and cgroups of its own.

Its libraries are copies of its own, at the same path in every container. It takes root and util-linux.
"""

import contextlib
import errno
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.cuda.needs import root
from tests.cuda.programs import built
from tests.support.components import real

Runtime = Literal["containerd", "crio"]
Driver = Literal["systemd", "cgroupfs"]
LIBRARIES = Path("/opt/cuda")
HIERARCHIES = Path("/sys/fs/cgroup")
# of version 1, those that a process can enter as they are
_OF_VERSION_1 = ("pids", "memory", "systemd")
_GONE_WITHIN = 5.0

# $1: a folder for the root, $2: what is compiled, $3: the folder of the libraries to copy, $4: cgroups
_ENTER = """set -e
root=$1 compiled=$2 libraries=$3
for cgroup in $4; do echo 0 >"$cgroup/cgroup.procs"; done # 0 is the shell itself
shift 4
mount -t tmpfs -o mode=755 container "$root"
for folder in /bin /lib /lib64 /usr "$compiled"; do
    if [ -L "$folder" ]; then
        cp -P "$folder" "$root$folder"
    elif [ -d "$folder" ]; then
        mkdir -p "$root$folder"
        mount --bind "$folder" "$root$folder"
    fi
done
mkdir -p "$root/opt/cuda" "$root/proc"
cp "$libraries"/* "$root/opt/cuda"
mount -t proc proc "$root/proc"
mkdir "$root/old"
cd "$root"
pivot_root . old
umount -l old
exec chroot . "$@"
"""


def cgroup_of(pod_uid: str, container_id: str, runtime: Runtime = "containerd", driver: Driver = "systemd") -> str:
    """The path of a container's cgroup, as the runtime names it with the kubelet's driver. The pod is Burstable."""
    if driver == "systemd":
        scope = {"containerd": "cri-containerd", "crio": "crio"}[runtime]
        pod = f"kubepods-burstable-pod{pod_uid.replace('-', '_')}.slice"
        return f"kubepods.slice/kubepods-burstable.slice/{pod}/{scope}-{container_id}.scope"
    name = {"containerd": container_id, "crio": f"crio-{container_id}"}[runtime]
    return f"kubepods/burstable/pod{pod_uid}/{name}"


def _hierarchies() -> list[Path]:
    """The folders of the mounted hierarchies: that of version 2, where it is mounted, is the last."""
    of_version_2 = [HIERARCHIES, HIERARCHIES / "unified"]
    found = [HIERARCHIES / name for name in _OF_VERSION_1]
    both = [*found, *(folder for folder in of_version_2 if (folder / "cgroup.controllers").exists())]
    return [folder for folder in both if (folder / "cgroup.procs").exists()]


@contextlib.contextmanager
def cgroups(path: str) -> Iterator[list[Path]]:
    """A cgroup of this path in every hierarchy, until the block ends; its processes have to end before."""
    made: list[Path] = []
    try:
        yield [_make(hierarchy, path, made) for hierarchy in _hierarchies()]
    finally:
        _remove(reversed(made))


def _make(hierarchy: Path, path: str, made: list[Path]) -> Path:
    folder = hierarchy
    for level in path.split("/"):
        folder /= level
        try:
            folder.mkdir()
        except FileExistsError:
            continue  # a pod's, say, of another container of these tests
        made.append(folder)
    return folder


def _remove(folders: Iterable[Path]) -> None:
    until = time.monotonic() + _GONE_WITHIN
    for folder in folders:
        while True:
            try:
                folder.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:
                if error.errno == errno.EBUSY and not _is_parent(folder) and time.monotonic() < until:
                    time.sleep(0.02)  # its last process is just ending
                    continue
            break


def _is_parent(folder: Path) -> bool:
    return any(entry.is_dir() for entry in os.scandir(folder))


@dataclass(frozen=True, slots=True)
class Container:
    """Where a program can be started: `Program(..., before=container.before, libraries=LIBRARIES)`."""

    before: Sequence[str | Path]
    folders: Sequence[Path]

    @property
    def pids(self) -> list[int]:
        """Its processes, by their pids on the machine."""
        return [int(pid) for pid in (self.folders[-1] / "cgroup.procs").read_text().split()]


@contextlib.contextmanager
def container(folder: Path, cgroup: str, libraries: Path | None = None) -> Iterator[Container]:
    """A container in this cgroup. `folder` is empty, and holds its root; `libraries` are copied to LIBRARIES."""
    made = built()
    unshare = real("unshare")
    root()
    with cgroups(cgroup) as entered:
        enter: list[str | Path] = ["sh", "-c", _ENTER, "enter", folder, made.folder, libraries or made.own]
        names = " ".join(str(each) for each in entered)
        namespaces: list[str | Path] = [
            unshare,
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--",
        ]
        yield Container([*namespaces, *enter, names], entered)
