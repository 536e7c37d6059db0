r"""The files of a host's process: their opening, the mapped files that matter to the probe, CUDA_VISIBLE_DEVICES.

A path in /proc/<pid>/maps belongs to the process' own mount namespace, and a container chooses it. openat2(2) with
RESOLVE_IN_ROOT opens it below /proc/<pid>/root, so that absolute links and .. lead to no file outside the container.
glibc has no wrapper for the call. A file is opened with O_PATH first, and for reading only if it is a regular file: to
open a device may have effects, and to open a FIFO waits.

Each line of maps is `<start>-<end> <rights> <offset> <device> <inode> <path>` (proc(5)); all numbers but the inode are
in hex. A line end in a path is written as \012 and nothing else is escaped, so a name with these four characters reads
as a name with a line end. A deleted file has " (deleted)" after its path, and a name may end so, too.

Tests: tests/probe/test_maps.py, tests/probe/test_environment.py.
"""

import ctypes
import os
import re
import stat
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import Literal, NamedTuple

from exporter.probe.elf import BadElf, variable_address

# A process may have 65,530 mappings by default, and a line takes some 100 bytes. If maps is longer, only the CUDA
# libraries in its first part are found.
MOST_MAPS_BYTES = 4 * 1024 * 1024
_READ_BYTES = 64 * 1024
_OPENAT2 = 437  # on every architecture, from Linux 5.6 on
_RESOLVE_IN_ROOT = 0x10
_RESOLVE_NO_MAGICLINKS = 0x02
_OVERLAY = 0x794C7630  # OVERLAYFS_SUPER_MAGIC of Linux
_STATFS_BYTES = 256  # more than the 120 bytes of struct statfs
_ENDED = (b"Z", b"X")  # the states of a process that has ended but is not reaped
# fields of stat count from 1; the list begins with the third, after the command
_STARTTIME = 22 - 3
_THREADS = 20 - 3


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_LIBC = ctypes.CDLL(None, use_errno=True)
_SYSCALL = _LIBC.syscall
_SYSCALL.restype = ctypes.c_long


class FileKey(NamedTuple):
    """The identity of a file of the host, by fstat.

    Each container's overlayfs is a device of its own, but a file of an image has the same inode below, to which uprobes
    go. So on overlayfs the device is 0, and inode and time of change (ns) identify the file. On other file systems
    `changed_ns` is 0.
    """

    device: int
    inode: int
    changed_ns: int = 0


class NotRegular(Exception):
    """The file at a path is no regular file."""


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close this open file at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def process_folder(proc: Path, pid: int) -> AbstractContextManager[int]:
    """A descriptor of /proc/<pid>. Files that are opened below it belong to that process.

    Raises OSError: there is no such process.
    """
    return closing(os.open(proc / str(pid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))


@contextmanager
def looked_at(process: int, path: str | None) -> Iterator[tuple[int, os.stat_result]]:
    """A file of the process as an O_PATH descriptor, and its status. `path` None: the executable itself.

    Raises NotRegular: it is a directory, a device or a FIFO; OSError: it cannot be found, or the process has ended.
    """
    opened = os.open("exe", os.O_PATH | os.O_CLOEXEC, dir_fd=process) if path is None else _in_root(process, path)
    with closing(opened) as file:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular
        yield file, status


def readable(looked_at: int, flags: int = os.O_NONBLOCK) -> AbstractContextManager[int]:
    """The file of an O_PATH descriptor, opened for reading. Raises OSError: it cannot be opened."""
    return closing(os.open(f"/proc/self/fd/{looked_at}", os.O_RDONLY | os.O_CLOEXEC | flags))


def key_of(file: int, status: os.stat_result) -> FileKey:
    """The identity of an open file with this status."""
    room = ctypes.create_string_buffer(_STATFS_BYTES)
    # struct statfs begins with f_type, a long
    if _LIBC.fstatfs(file, room) == 0 and int.from_bytes(room.raw[:8], "little") == _OVERLAY:
        return FileKey(0, status.st_ino, status.st_ctime_ns)
    return FileKey(status.st_dev, status.st_ino)


def read_below(process: int, name: str, most_bytes: int) -> bytes:
    """The first bytes of a file of /proc/<pid>. Raises OSError: the process has ended, or the exporter has no right."""
    with closing(os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)) as file:
        parts = []
        left = most_bytes
        while left and (part := os.read(file, min(left, _READ_BYTES))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)


def stat_fields(process: int) -> tuple[int, int]:
    """A process' start (ticks of the boot-time clock) and number of threads, with an ended first thread.

    Raises OSError: the process has ended.
    """
    fields = read_below(process, "stat", 4096).rpartition(b")")[2].split()  # a command may hold blanks and brackets
    try:
        started = int(fields[_STARTTIME])
        threads = int(fields[_THREADS])
    except (IndexError, ValueError) as error:
        raise OSError("stat has another form") from error
    if threads <= 1 and fields[0] in _ENDED:
        raise ProcessLookupError("its last thread has ended, and nobody has reaped it")
    return started, threads


def _in_root(process: int, path: str) -> int:
    with closing(os.open("root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)) as root:
        # for a process in a chroot, the kernel shows paths from the root of its mount namespace
        below = os.readlink("root", dir_fd=process)
        if below != "/" and path.startswith(f"{below}/"):
            path = path[len(below) :]
        how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
        file: int = _SYSCALL(
            ctypes.c_long(_OPENAT2), root, os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
        )
        if file < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return file


# "program" is the executable itself, which may have the CUDA runtime linked in.
MappedRole = Literal["cudart", "cuda", "libc", "program"]

# A text that maps has for every process with the CUDA runtime or driver. It is cheap to look for.
MARK = b"/libcuda"
# A process maps a runtime, a driver and a libc. If it maps more copies, the first MOST_FILES count.
MOST_FILES = 16

_LINE = re.compile(
    r"^(?P<start>[0-9a-f]{1,16})-[0-9a-f]{1,16} [r-][w-]x[ps] (?P<offset>[0-9a-f]{1,16}) "
    r"(?P<device>[0-9a-f]{1,8}:[0-9a-f]{1,8}) (?P<inode>[1-9][0-9]{0,19}) +(?P<path>/[^\n]*)$",
    re.MULTILINE,
)
_DELETED = " (deleted)"
_ROLES: tuple[tuple[MappedRole, re.Pattern[str]], ...] = (
    # Python's wheels rename their copy: libcudart-d0da41ae.so.11.0
    ("cudart", re.compile(r"libcudart(?:-[0-9a-f]+)?\.so(?:\..*)?", re.DOTALL)),
    ("cuda", re.compile(r"libcuda\.so(?:\..*)?", re.DOTALL)),
    # glibc: libc.so.6, before 2.34 libc-2.31.so; musl: a single file is loader and libc, under any of these names
    (
        "libc",
        re.compile(r"libc\.so(?:\.6)?|libc-2\.[0-9.]+\.so|ld-musl-[a-z0-9_]+\.so\.1|libc\.musl-[a-z0-9_]+\.so\.1"),
    ),
)


class MappedFile(NamedTuple):
    """A file that a process has mapped executable.

    Attributes:
        path: its path in the process' mount namespace, without a deleted file's mark.
        is_deleted: whether the path has the mark of a deleted file.
        device: "major:minor" in hex, as maps has it; fstat may say another (overlayfs, btrfs).
        inode: its inode, as maps has it.
        start: the address of its first executable mapping.
        offset: the offset in the file at which that mapping begins.
        role: its kind.
        times: the number of its executable mappings.
    """

    path: str
    is_deleted: bool
    device: str
    inode: int
    start: int
    offset: int
    role: MappedRole
    times: int = 1


def read_maps(text: str, program: str = "") -> tuple[MappedFile, ...]:
    """The executable mapped files that matter, each once, in the order of their addresses.

    `program` is the target of the link /proc/<pid>/exe, and matters, too. Lines of another form are left out, as are
    files after the first `MOST_FILES`.
    """
    files: dict[tuple[str, int, str], MappedFile] = {}
    more: Counter[tuple[str, int, str]] = Counter()
    for line in _LINE.finditer(text):
        shown = line["path"].replace("\\012", "\n")
        path = shown.removesuffix(_DELETED)
        name = path.rpartition("/")[2]
        role = "program" if shown == program else next((role for role, it in _ROLES if it.fullmatch(name)), None)
        if role is None:
            continue
        key = line["device"], int(line["inode"]), path
        if key in files:
            more[key] += 1
        elif len(files) < MOST_FILES:
            files[key] = MappedFile(
                path, shown != path, *key[:2], int(line["start"], 16), int(line["offset"], 16), role
            )
    return tuple(file._replace(times=1 + more[key]) for key, file in files.items())


# Limits on reads of a process' memory. The program may write anything there at any time, so nothing in it is trusted.
MOST_VARIABLES = 4_096
MOST_START_BYTES = 128 * 1024
MOST_CHARACTERS = 4_096
# The most bytes of a file's symbols and strings that are searched for `environ`. They take 0.2 s for each process, and
# a container may start many processes of large files.
MOST_TABLE_BYTES = 16 * 1024 * 1024
# The longest search of all files of a process, in CPU seconds of this thread.
MOST_SECONDS = 0.5

MOST_DEVICE_FILES = 4_096
_GPU = re.compile(r"nvidia[0-9]+")
_VARIABLE = b"CUDA_VISIBLE_DEVICES="
_SYMBOLS = ("environ", "__environ")
_POINTER = struct.Struct("<Q")
_MOST_ADDRESS = 1 << 63
_MOST_BYTES = 4 * MOST_CHARACTERS  # of UTF-8
_UNREADABLE = "the environment cannot be read from the process' memory"


class Hidden(Exception):
    """The exporter has no right to read the environment of a process that runs."""


def visible_devices(proc: Path, pid: int) -> str | None:
    """The first 4,096 characters of a process' CUDA_VISIBLE_DEVICES; None if it is not set, or the process is gone.

    /proc/<pid>/environ shows the environment with which the process started, without later changes. The libc's variable
    `environ` points to the present one; the linker may have put a copy of the variable into the executable. So the
    variable is read from the process' memory, with the right to trace it (CAP_SYS_PTRACE; for another user's process
    CAP_DAC_READ_SEARCH, too). If that fails (a stripped static program, one with very many symbols, another libc), the
    environment of the start counts.

    `proc` is the folder /proc. Bytes that are no UTF-8 are replaced. Raises Hidden: the exporter has no right.
    """
    try:
        with process_folder(proc, pid) as process:
            try:
                value = _of_memory(process)
            except (OSError, BadElf, NotRegular):
                value = _of_start(process)
            return None if value is None else value.decode("utf-8", "replace")[:MOST_CHARACTERS]
    except PermissionError as error:
        raise Hidden from error
    except OSError:
        return None


def gpu_files(proc: Path, pid: int) -> int:
    """The number of GPUs' device files, /dev/nvidia<N>, that a process finds; 0 if it is not known.

    A container finds the files of the GPUs that it was given. A privileged container finds all files (Kubernetes' issue
    81256). So does a container that sets NVIDIA_VISIBLE_DEVICES, if NVIDIA's runtime follows it. CUDA numbers all of
    them.
    """
    try:
        with (
            process_folder(proc, pid) as process,
            # O_DIRECTORY opens nothing but a folder: ENOTDIR
            closing(_in_root(process, "/dev")) as devices,
            readable(devices, os.O_DIRECTORY) as folder,
            os.scandir(folder) as entries,
        ):
            return sum(_GPU.fullmatch(entry.name) is not None for entry in islice(entries, MOST_DEVICE_FILES))
    except OSError:
        return 0


def _of_start(process: int) -> bytes | None:
    variables = read_below(process, "environ", MOST_START_BYTES).split(b"\0")
    return next(
        (variable.removeprefix(_VARIABLE)[:_MOST_BYTES] for variable in variables if variable.startswith(_VARIABLE)),
        None,
    )


def _of_memory(process: int) -> bytes | None:
    at = _address_of_environ(process)
    with closing(os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)) as memory:
        variables = int.from_bytes(_read(memory, at, _POINTER.size), "little")
        if not variables:
            return None  # clearenv(3)
        pointers = _read(memory, variables, MOST_VARIABLES * _POINTER.size)
        whole = len(pointers) - len(pointers) % _POINTER.size
        for (pointer,) in takewhile(any, _POINTER.iter_unpack(pointers[:whole])):
            if _read(memory, pointer, len(_VARIABLE)) == _VARIABLE:
                return _read(memory, pointer + len(_VARIABLE), _MOST_BYTES).partition(b"\0")[0]
        return None


def _address_of_environ(process: int) -> int:
    """The address of `environ` in a process' memory: the executable's copy if it has one, else the libc's."""
    program = os.readlink("exe", dir_fd=process)
    files = read_maps(os.fsdecode(read_below(process, "maps", MOST_MAPS_BYTES)), program)
    until = time.thread_time() + MOST_SECONDS
    for mapped in sorted(files, key=lambda mapped: mapped.role != "program"):
        if time.thread_time() > until:
            raise OSError(_UNREADABLE)
        # at the path of a deleted libc there is another file now
        if mapped.role != "program" and (mapped.role != "libc" or mapped.is_deleted):
            continue
        path = None if mapped.role == "program" else mapped.path
        # an executable may have a copy of `environ`, which then counts; if it cannot be searched, nothing counts
        with looked_at(process, path) as (descriptor, _), readable(descriptor) as file:
            distance = variable_address(file, _SYMBOLS, mapped.offset, most_table_bytes=MOST_TABLE_BYTES)
            if distance is not None:
                return mapped.start + distance
    raise OSError(_UNREADABLE)


def _read(memory: int, at: int, most_bytes: int) -> bytes:
    """The bytes at an address, up to the first page that is not there. Raises OSError: there are none."""
    if 0 <= at < _MOST_ADDRESS and (content := os.pread(memory, most_bytes, at)):
        return content
    raise OSError(_UNREADABLE)
