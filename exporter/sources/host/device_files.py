"""The character devices of NVIDIA's driver: which there are, and whether this process may open them.

Nothing is opened. To open /dev/nvidia<N> starts a GPU that nobody uses, which takes seconds, and a GPU that has fallen
off the bus may hold up whoever opens it. faccessat(2) asks the kernel for the same permission: by the mode of the file
and by SELinux (both EACCES), and by the rules of the cgroup for devices (EPERM), those of version 1 as well as a BPF
program of version 2: the kernel's inode_permission() asks all three.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

from exporter.model.host import DeviceFile, Refusal
from exporter.sources.host.groups import read_groups

MOST_FILES = 512
_CAPS = "nvidia-caps"
_AT_FDCWD, _AT_EACCESS = -100, 0x200
_libc = ctypes.CDLL(None, use_errno=True)


def look(root: Path) -> tuple[DeviceFile, ...] | None:
    """The driver's device files below `root`, in the order of their paths; None where no driver is loaded.

    Raises:
        OSError: nobody can tell.
    """
    majors = set(read_groups(root).values())
    if not majors:
        return None
    files = []
    for path in _candidates(root / "dev"):
        with suppress(FileNotFoundError):  # it went away meanwhile
            status = path.lstat()
            if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in majors:
                # the driver makes those of MIG instances for reading alone
                wants = os.R_OK if path.parent.name == _CAPS else os.R_OK | os.W_OK
                files.append(DeviceFile(f"/{path.relative_to(root)}", _refusal(path, status, wants)))
    return tuple(sorted(files))


def _candidates(dev: Path) -> Iterator[Path]:
    for folder in (dev, dev / _CAPS):
        with suppress(FileNotFoundError, NotADirectoryError):
            yield from islice((path for path in folder.iterdir() if path.name.startswith("nvidia")), MOST_FILES)


def _refusal(path: Path, status: os.stat_result, wants: int) -> Refusal:
    if _libc.faccessat(_AT_FDCWD, os.fsencode(path), wants, _AT_EACCESS) == 0:
        return ""
    why = ctypes.get_errno()
    if why == errno.EPERM:
        return "cgroup"
    if why == errno.EACCES:
        return "security_module" if _mode_allows(status, wants) else "mode"
    raise OSError(why, os.strerror(why))


def _mode_allows(status: os.stat_result, wants: int) -> bool:
    if status.st_uid == os.geteuid():
        allowed = status.st_mode >> 6
    elif status.st_gid in {os.getegid(), *os.getgroups()}:
        allowed = status.st_mode >> 3
    else:
        allowed = status.st_mode
    return allowed & wants == wants
