"""What a process may see of CUDA: CUDA_VISIBLE_DEVICES as it is now, and the device files of GPUs that it finds.

/proc/<pid>/environ shows the environment with which the process started, and nothing that it set later. A program finds
its environment by the libc's variable `environ`, of which the linker may have put a copy into the executable. So the
exporter reads that variable from the process' memory, with the right to trace it (CAP_SYS_PTRACE). Where that does not
work (a stripped static program, one with very many symbols, another libc), the environment of the start counts.

A container finds the device files of the GPUs that it was given. A privileged one finds those of all (Kubernetes' issue
81256), and so does one that sets NVIDIA_VISIBLE_DEVICES where NVIDIA's runtime follows it. CUDA numbers all of them.

The program may write anything to its memory, at any time: nothing in it is trusted, and all that is read has limits.
"""

import os
import re
import struct
import time
from itertools import islice, takewhile
from pathlib import Path

from exporter.sources.cuda_probe import process_files
from exporter.sources.cuda_probe.elf import BadElf, variable_address

MOST_VARIABLES = 4_096
MOST_START_BYTES = 128 * 1024
MOST_CHARACTERS = 4_096
# Bytes of symbols and strings of a file that are searched for `environ`. So many take 0.2 s for each process, and a
# container may start many processes of large files.
MOST_TABLE_BYTES = 16 * 1024 * 1024
# How long all files of a process are searched, in seconds of this thread on a CPU.
MOST_SECONDS = 0.5

MOST_DEVICE_FILES = 4_096
_GPU = re.compile(r"nvidia[0-9]+")
_NAME = b"CUDA_VISIBLE_DEVICES="
_SYMBOLS = ("environ", "__environ")
_POINTER = struct.Struct("<Q")
_MOST_ADDRESS = 1 << 63
_MOST_BYTES = 4 * MOST_CHARACTERS  # of UTF-8


_UNREADABLE = "the environment cannot be read from the process' memory"


class Hidden(Exception):
    """The process is there, and the exporter has no right to read its environment."""


def visible_devices(proc: Path, pid: int) -> str | None:
    """CUDA_VISIBLE_DEVICES of a process, its first 4,096 characters; None where it is not set, or the process is gone.

    `proc` is /proc. Bytes that are no UTF-8 are replaced. Raises Hidden: it may not be read. Of another user's process
    it takes CAP_DAC_READ_SEARCH, beside CAP_SYS_PTRACE.
    """
    try:
        with process_files.process_folder(proc, pid) as process:
            try:
                value = _of_memory(process)
            except (OSError, BadElf, process_files.NotRegular):
                value = _of_start(process)
            return None if value is None else value.decode("utf-8", "replace")[:MOST_CHARACTERS]
    except PermissionError as error:
        raise Hidden from error
    except OSError:
        return None


def gpu_files(proc: Path, pid: int) -> int:
    """How many device files of GPUs, /dev/nvidia<N>, a process finds; 0 where that cannot be told."""
    try:
        with (
            process_files.process_folder(proc, pid) as process,
            process_files.folder_in(process, "/dev") as folder,
            os.scandir(folder) as entries,
        ):
            return sum(_GPU.fullmatch(entry.name) is not None for entry in islice(entries, MOST_DEVICE_FILES))
    except OSError:
        return 0


def _of_start(process: int) -> bytes | None:
    variables = process_files.read_below(process, "environ", MOST_START_BYTES).split(b"\0")
    return next((each.removeprefix(_NAME)[:_MOST_BYTES] for each in variables if each.startswith(_NAME)), None)


def _of_memory(process: int) -> bytes | None:
    at = _address_of_environ(process)
    with process_files.closing(os.open("mem", os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)) as memory:
        variables = int.from_bytes(_read(memory, at, _POINTER.size), "little")
        if not variables:
            return None  # clearenv(3)
        pointers = _read(memory, variables, MOST_VARIABLES * _POINTER.size)
        whole = len(pointers) - len(pointers) % _POINTER.size
        for (pointer,) in takewhile(any, _POINTER.iter_unpack(pointers[:whole])):
            if _read(memory, pointer, len(_NAME)) == _NAME:
                return _read(memory, pointer + len(_NAME), _MOST_BYTES).partition(b"\0")[0]
        return None


def _address_of_environ(process: int) -> int:
    """The address of `environ` in the memory of the process: that of the executable, if it has one, or the libc's."""
    program = os.readlink("exe", dir_fd=process)
    files = process_files.read_maps(
        os.fsdecode(process_files.read_below(process, "maps", process_files.MOST_MAPS_BYTES)), program
    )
    until = time.thread_time() + MOST_SECONDS
    for mapped in sorted(files, key=lambda mapped: mapped.role != "program"):
        if time.thread_time() > until:
            raise OSError(_UNREADABLE)
        # what is at the path of a deleted libc now is another one
        if mapped.role != "program" and (mapped.role != "libc" or mapped.is_deleted):
            continue
        path = None if mapped.role == "program" else mapped.path
        # An executable may have a copy of `environ`, which then counts, not the libc's. Unsearched, it may have one.
        with process_files.looked_at(process, path) as (descriptor, _), process_files.readable(descriptor) as file:
            distance = variable_address(file, _SYMBOLS, mapped.offset, most_table_bytes=MOST_TABLE_BYTES)
            if distance is not None:
                return mapped.start + distance
    raise OSError(_UNREADABLE)


def _read(memory: int, at: int, most_bytes: int) -> bytes:
    """What is at an address, up to the first page that is not there."""
    if 0 <= at < _MOST_ADDRESS and (content := os.pread(memory, most_bytes, at)):
        return content
    raise OSError(_UNREADABLE)
