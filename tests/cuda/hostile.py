"""Programs of nobody that are out to harm the probe, and the files by which they do. `hostile.c` is the program."""

import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from exporter.probe.elf import MOST_PROBED
from exporter.probe.functions import WANTED
from tests.cuda.programs import built
from tests.support.components import real

NAMES = WANTED["cudart"]
_MACHINE = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
_NOP = {"x86_64": b"\x90", "aarch64": b"\x1f\x20\x03\xd5"}[os.uname().machine]
_PAGE_BYTES = 4096
_CODE_AT, _CODE_STEP = 16 * _PAGE_BYTES, 16
_FUNCTION, _VARIABLE = 0x12, 0x11
_HEADS_AT = 64
_AS_NOBODY = ("--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all")


def elf(symbols: Sequence[tuple[str, int]], segments: Sequence[tuple[int, int, int]], kind: int = _FUNCTION) -> bytes:
    """A shared object of symbols (name, address) and of segments with code (offset, address, bytes)."""
    strings, place = b"\0", {}
    for name in sorted({name for name, _ in symbols}):
        place[name] = len(strings)
        strings += name.encode() + b"\0"
    heads = b"".join(struct.pack("<IIQQQQQQ", 1, 5, at, address, 0, size, size, 0) for at, address, size in segments)
    table = b"".join(struct.pack("<IBBHQQ", place[name], kind, 0, 1, address, 1) for name, address in symbols)
    table_at = _HEADS_AT + len(heads)
    strings_at = table_at + len(table)
    sections = struct.pack("<IIQQQQIIQQ", 0, 11, 2, 0, table_at, len(table), 1, 0, 8, 24)
    sections += struct.pack("<IIQQQQIIQQ", 0, 3, 2, 0, strings_at, len(strings), 0, 0, 1, 0)
    shape = (_HEADS_AT, strings_at + len(strings), 0, 64, 56, len(segments), 64, 2, 0)
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 3, _MACHINE, 1, 0, *shape)
    return head + heads + table + strings + sections


def library_of(file: Path, *, places: int) -> Path:
    """A libcudart with so many places to probe, all in one page of code."""
    names = sorted(NAMES)
    at = [(names[number % len(names)], _CODE_AT + _CODE_STEP * number) for number in range(places)]
    content = elf(at, [(_CODE_AT, _CODE_AT, _PAGE_BYTES)])
    file.write_bytes(content.ljust(_CODE_AT, b"\0") + _NOP * (_PAGE_BYTES // len(_NOP)))
    return file


def slow_library(file: Path, *, segments: int = 1_000, symbols: int = 100_000) -> Path:
    """A libcudart of 2.4 MiB, each symbol of which has to be looked up in every segment, and is in none."""
    content = elf([("cudaMalloc", 0)] * symbols, [(0, 1 << 40, _PAGE_BYTES)] * segments)
    file.write_bytes(content)
    return file


def libc_below_memory(file: Path) -> Path:
    """A libc whose `environ` is more than 2^63 bytes before the place where it is mapped."""
    content = elf([("environ", 0)], [(0, (1 << 64) - _PAGE_BYTES, _PAGE_BYTES)], _VARIABLE)
    file.write_bytes(content.ljust(1 << 20, b"\0"))  # so that it finds no room but below the libc of the process
    return file


class Files(NamedTuple):
    """What each of the programs maps; `runtime` is what they call, and `hidden` is `shown` by another name."""

    crowded: Path
    hidden: Path
    shown: Path
    slow: Path
    libc: Path
    runtime: Path


@contextmanager
def files() -> Iterator[Files]:
    """Those files, in a folder that nobody may read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        crowded, shown, slow, runtime = (folder / kind / "libcudart.so.12" for kind in ("many", "few", "slow", "own"))
        for file in (crowded, shown, slow, runtime):
            file.parent.mkdir()
        library_of(crowded, places=171)
        library_of(shown, places=MOST_PROBED)
        (hidden := folder / "hidden").hardlink_to(shown)
        slow_library(slow)
        shutil.copy(built().runtime, runtime)
        yield Files(crowded, hidden, shown, slow, libc_below_memory(folder / "libc.so"), runtime)


@contextmanager
def running(file: Path, times: int, *more: Path, environment: Mapping[str, str] | None = None) -> Iterator[int]:
    """The pid of a process of nobody that maps a file so often, and calls a runtime if given one."""
    command: list[str | Path] = [real("setpriv"), *_AS_NOBODY, built().program("hostile"), file, str(times), *more]
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process.pid
        finally:
            process.kill()
