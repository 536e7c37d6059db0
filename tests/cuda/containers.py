"""Containers without a container runtime: a program in a root, a PID namespace and cgroups of its own.

Its libraries are copies of its own, at the same path in every container. It takes root and util-linux.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from uuid import NAMESPACE_OID, uuid4, uuid5

from tests.cuda.needs import root
from tests.cuda.programs import built
from tests.support.components import real

Runtime = Literal["containerd", "crio"]
Driver = Literal["systemd", "cgroupfs"]
_RUN = uuid4()
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


def uid(number: int) -> str:
    """The UID of a pod: another one in each run of the tests, as cgroups are the machine's."""
    return str(uuid5(NAMESPACE_OID, f"{_RUN} pod {number}"))


def container_id(number: int) -> str:
    """The id of a container, likewise."""
    return 2 * uuid5(NAMESPACE_OID, f"{_RUN} container {number}").hex


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
        for hierarchy in _hierarchies():
            made.append(hierarchy / path)
            _make(made[-1])
        yield made
    finally:
        for folder in made:
            _remove(folder, len(path.split("/")))


def _make(folder: Path) -> None:
    until = time.monotonic() + _GONE_WITHIN
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileNotFoundError:  # another run of the tests has just removed one above it
            if time.monotonic() > until:
                raise
        else:
            return


def _remove(folder: Path, levels: int) -> None:
    """Remove it and the levels above it that are empty then."""
    until = time.monotonic() + _GONE_WITHIN
    # its last process is just ending
    while folder.exists() and not _removed(folder) and time.monotonic() < until:
        time.sleep(0.02)
    for above, _ in zip(folder.parents, range(1, levels), strict=False):
        if not _removed(above):
            break


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


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
