"""The kernel's limit on this process' memory: a container's `limits.memory`, a service's MemoryMax.

https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html there, and cgroups(7) for /proc/self/cgroup.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# without a limit, version 1 writes the largest multiple of a page below 2 to the 63rd
_NO_LIMIT = 2**62
_MOST_BYTES = 64 * 1024
# by the file with the limit: the file with the present use, and the number of memory.stat for pages of files
_USED = {
    "memory.max": ("memory.current", "file"),
    "memory.limit_in_bytes": ("memory.usage_in_bytes", "total_cache"),
}


def limit_bytes(root: Path) -> int | None:
    """The least limit of the process' cgroups, in bytes; None if there is none, or none can be read."""
    return min((limit for _, limit in _limits(root)), default=None)


def room_bytes(root: Path) -> int | None:
    """What the process' cgroups may still take, all processes in them together, in bytes; None without a limit.

    Pages of files count as free, since the kernel gives them up first.
    """
    rooms = []
    for file, limit in _limits(root):
        used, of_files = _USED[file.name]
        with suppress(OSError, ValueError):
            statistics = dict(line.split() for line in _text(file.parent / "memory.stat").splitlines())
            of_memory = int(statistics.get("shmem", 0))
            reclaimable = max(0, int(statistics.get(of_files, 0)) - of_memory)
            rooms.append(limit - int(_text(file.parent / used)) + reclaimable)
    return min(rooms, default=None)


def _limits(root: Path) -> Iterator[tuple[Path, int]]:
    """The files with the limits of the process' cgroups, and the limits in bytes."""
    for file in _files_of_limits(root):
        with suppress(OSError, ValueError):  # there is no such file, or it has `max`
            limit = int(_text(file))
            if 0 < limit < _NO_LIMIT:
                yield file, limit


def _files_of_limits(root: Path) -> Iterator[Path]:
    """The files with the limits of the process' cgroup, and of the cgroups above it.

    A container may see the node's path of its cgroup, while its mount has that cgroup at the top.
    """
    try:
        lines = _text(root / "proc/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif controllers == "memory":
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = Path(path.lstrip("/"))
        for folder in (own, *own.parents):
            yield top / folder / name


def _text(path: Path) -> str:
    with path.open(encoding="ascii", errors="replace") as file:
        return file.read(_MOST_BYTES)
