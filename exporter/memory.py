"""The kernel's limit on this process' memory: a container's `limits.memory`, a service's MemoryMax.

https://docs.kernel.org/admin-guide/cgroup-v2.html, cgroup-v1/memory.html there, and cgroups(7) for /proc/self/cgroup.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# without a limit, version 1 writes the largest multiple of a page below 2 to the 63rd
_NO_LIMIT = 2**62
_MOST_BYTES = 64 * 1024


def limit_bytes(root: Path) -> int | None:
    """The least limit of the process' cgroups, in bytes; None if there is none, or none can be read."""
    limits = []
    for file in _files_of_limits(root):
        with suppress(OSError, ValueError):  # there is no such file, or it has `max`
            limits.append(int(_text(file)))
    return min((limit for limit in limits if 0 < limit < _NO_LIMIT), default=None)


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
