"""Opening the files of a process of the host, by its folder in /proc.

A path in /proc/<pid>/maps is one of the process' own mount namespace. It is opened below /proc/<pid>/root by openat2(2)
with RESOLVE_IN_ROOT: what a container puts at the path, absolute links and .. included, leads to no file outside of
the container. glibc has no wrapper for the call.

A file is looked at with O_PATH first and opened only if it is a regular one: opening a device may do something, and
opening a FIFO waits.
"""

import ctypes
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# A process may have 65,530 mappings unless told otherwise; a line takes some 100 bytes. One that has more than this
# has its CUDA libraries found only if they are in the first part.
MOST_MAPS_BYTES = 4 * 1024 * 1024
_READ_BYTES = 64 * 1024
_OPENAT2 = 437  # on every architecture, from Linux 5.6 on
_RESOLVE_IN_ROOT, _RESOLVE_NO_MAGICLINKS = 0x10, 0x02
_OVERLAY = 0x794C7630  # OVERLAYFS_SUPER_MAGIC of Linux
_STATFS_BYTES = 256  # struct statfs has 120
_ENDED = (b"Z", b"X")  # states of a process that waits to be reaped
# fields of stat count from 1; after the command, which is the second, comes the third
_STARTTIME, _THREADS = 22 - 3, 20 - 3


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSCALL = _LIBC.syscall
_SYSCALL.restype = ctypes.c_long


class FileKey(NamedTuple):
    """A file of the host, by what fstat says of it.

    Each container's overlayfs is a device of its own, and a file of an image is on as many of them as containers have
    been made of the image. It is one file all the same, with one inode below, to which uprobes go. So on overlayfs the
    device is 0, and inode and time of change (ns) tell the file; `changed_ns` is 0 elsewhere.
    """

    device: int
    inode: int
    changed_ns: int = 0


class NotRegular(Exception):
    """What stands at a path is no regular file."""


@contextmanager
def process_folder(proc: Path, pid: int) -> Iterator[int]:
    """A descriptor of /proc/<pid>. What is opened below it is that process', or not there once it has ended.

    Raises:
        OSError: there is no such process.
    """
    folder = os.open(proc / str(pid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


@contextmanager
def looked_at(process: int, path: str | None) -> Iterator[tuple[int, os.stat_result]]:
    """A file of the process as an O_PATH descriptor, and its status; None as `path` is the executable itself.

    Raises:
        NotRegular: it is a directory, a device, a FIFO.
        OSError: it cannot be found, or the process has ended.
    """
    file = os.open("exe", os.O_PATH | os.O_CLOEXEC, dir_fd=process) if path is None else _in_root(process, path)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular
        yield file, status
    finally:
        os.close(file)


@contextmanager
def readable(looked_at: int) -> Iterator[int]:
    """A regular file opened for reading, which an O_PATH descriptor stands for.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(f"/proc/self/fd/{looked_at}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def folder_in(process: int, path: str) -> Iterator[int]:
    """A folder of the process' own mount namespace, opened for reading.

    Raises:
        OSError: there is none, or the process has ended.
    """
    found = _in_root(process, path)
    try:
        # of all else that may stand there nothing is opened: ENOTDIR
        folder = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(found)
    try:
        yield folder
    finally:
        os.close(folder)


def key_of(file: int, status: os.stat_result) -> FileKey:
    """What tells this open file from others."""
    if _is_on_overlay(file):
        return FileKey(0, status.st_ino, status.st_ctime_ns)
    return FileKey(status.st_dev, status.st_ino)


def read_below(process: int, name: str, most_bytes: int) -> bytes:
    """The first bytes of a file of /proc/<pid>, which may take many reads.

    Raises:
        OSError: the process has ended, or may not be looked at.
    """
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        parts, left = [], most_bytes
        while left and (part := os.read(file, min(left, _READ_BYTES))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def stat_fields(process: int) -> tuple[int, int]:
    """When the process was started, in ticks of the boot-time clock, and how many threads it has, an ended one counted.

    Raises:
        OSError: it has ended.
    """
    fields = read_below(process, "stat", 4096).rpartition(b")")[2].split()  # a command may hold blanks and brackets
    try:
        started, threads = int(fields[_STARTTIME]), int(fields[_THREADS])
    except (IndexError, ValueError) as error:
        raise OSError("stat has another form") from error
    if threads <= 1 and fields[0] in _ENDED:
        raise ProcessLookupError("its last thread has ended, and nobody has reaped it")
    return started, threads


def _is_on_overlay(file: int) -> bool:
    # struct statfs begins with f_type, a long
    room = ctypes.create_string_buffer(_STATFS_BYTES)
    return _LIBC.fstatfs(file, room) == 0 and int.from_bytes(room.raw[:8], "little") == _OVERLAY


def _in_root(process: int, path: str) -> int:
    root = os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        # of a process in a chroot the kernel shows paths from the root of its mount namespace
        below = os.readlink("root", dir_fd=process)
        if below != "/" and path.startswith(f"{below}/"):
            path = path[len(below) :]
        how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        file: int = _SYSCALL(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(root),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if file < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return file
    finally:
        os.close(root)
