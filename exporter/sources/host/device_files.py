"""The character devices of NVIDIA's driver, and whether this process may open them.

Nothing is opened: an open starts an idle GPU, which takes seconds, and may block if a GPU has fallen off the bus.
faccessat(2) asks the kernel for the same permission. The kernel's inode_permission() checks the mode and SELinux (both
EACCES), and the cgroup's rules for devices (EPERM), in version 1 or as a BPF program in version 2.

/proc/devices, which is the same in every container, lists the groups of devices that the driver registers, with their
majors. Only the major of the GPUs is fixed: 195, in the group nvidia-frontend, or nvidia in newer drivers.
"""

import ctypes
import errno
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from exporter.model.driver import DeviceFile, Refusal

MOST_FILES = 512
_CAPS = "nvidia-caps"
_AT_FDCWD = -100
_AT_EACCESS = 0x200
_libc = ctypes.CDLL(None, use_errno=True)


def look(root: Path) -> tuple[DeviceFile, ...] | None:
    """The device files below `root`, by path; None if no driver is loaded. Raises OSError: /proc cannot be read."""
    majors = set(read_groups(root).values())
    if not majors:
        return None
    files = []
    for path in _candidates(root / "dev"):
        with suppress(FileNotFoundError):  # it went away meanwhile
            status = path.lstat()
            if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) in majors:
                # the driver makes device files of MIG instances for reading only
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


# The groups of GPUs with /dev/nvidiactl, of CUDA's memory, and of MIG instances. Left out: those that join machines,
# nvidia-nvswitch and nvidia-caps-imex-channels.
GROUPS = ("nvidia", "nvidia-frontend", "nvidia-uvm", "nvidia-caps")
DEVICES = "proc/devices"
MOST_BYTES = 64 * 1024


def groups_in(text: str) -> Mapping[str, int]:
    """The major of each of GROUPS that /proc/devices names among its character devices."""
    majors: dict[str, int] = {}
    for line in text.partition("Block devices:")[0].splitlines():
        major, _, name = line.strip().partition(" ")
        if name in GROUPS and major.isascii() and major.isdigit():
            majors[name] = int(major)
    return majors


def read_groups(root: Path) -> Mapping[str, int]:
    """The groups in the present /proc/devices; empty without a driver. Raises OSError: the file cannot be read."""
    with (root / DEVICES).open("rb") as file:
        return groups_in(file.read(MOST_BYTES).decode("utf-8", "replace"))
