"""Programs over a runtime of one's choice, NVIDIA's own too: one that nvcc compiles, and one of Python by ctypes."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.cuda.programs import SOURCES, kept
from tests.support.components import cudart, nvcc

# Runs below any Python, the system's too: it takes ctypes, and no module of the tests.
_BY_CTYPES = """
import ctypes, json, sys
cudart = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]
cudart.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cudart.cudaMemcpy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
cudart.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
at, host = ctypes.c_void_p(), ctypes.create_string_buffer(4096)
codes = {}
def did(name, code):
    of = codes.setdefault(name, {})
    of[code] = of.get(code, 0) + 1
for _ in range(int(sys.argv[2])):
    did("cudaLaunchKernel", cudart.cudaLaunchKernel(None, Dim3(4, 2, 1), Dim3(32, 2, 1), None, 0, None))
for _ in range(3):
    did("cudaMalloc", cudart.cudaMalloc(ctypes.byref(at), 1 << 20))
for _ in range(2):
    did("cudaMemcpy", cudart.cudaMemcpy(host, host, 4096, 1))
did("cudaDeviceSynchronize", cudart.cudaDeviceSynchronize())
print(json.dumps(codes), flush=True)
sys.stdin.readline()
"""

Codes = Mapping[str, Mapping[int, int]]


def codes_of(line: str) -> Codes:
    """How often each function returned which code, as hello.cu and the Python program print it."""
    return {name: {int(code): times for code, times in of.items()} for name, of in json.loads(line).items()}


class Told(NamedTuple):
    """A started program that says "ready", waits for a line, works, prints a line, and waits for another."""

    process: "subprocess.Popen[str]"

    @property
    def pid(self) -> int:
        return self.process.pid

    def codes(self) -> Codes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return codes_of(self.process.stdout.readline())


@contextlib.contextmanager
def told(*command: str | Path, environment: Mapping[str, str] | None = None) -> Iterator[Told]:
    """A program of that command line, ready; it ends with the block."""
    more = {**os.environ, **(environment or {})}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=more) as started:
        assert started.stdout
        try:
            assert started.stdout.readline() == "ready\n"
            yield Told(started)
        finally:
            started.kill()


class Hello(NamedTuple):
    """The program of hello.cu, and NVIDIA's own libcudart.so.13, by which it runs."""

    program: Path
    runtime: Path


@cache
def hello() -> Hello:
    """It takes NVIDIA's compiler."""
    source, compiler, runtime = SOURCES / "hello.cu", nvcc(), cudart()

    def make(folder: Path) -> None:
        subprocess.run([compiler, "-cudart", "shared", source, "-o", folder / "hello"], check=True, timeout=120)

    return Hello(kept([source], make) / "hello", runtime)


def by_nvcc(launches: int = 5) -> contextlib.AbstractContextManager[Told]:
    """hello.cu: so many launches, 3 allocations, 2 copies, a release and 2 synchronisations."""
    made = hello()
    return told(made.program, str(launches), environment={"LD_LIBRARY_PATH": str(made.runtime.parent)})


def by_ctypes(library: Path, launches: int = 5) -> contextlib.AbstractContextManager[Told]:
    """A Python program that opens the library: so many launches, 3 allocations, 2 copies and a synchronisation."""
    return told(sys.executable, "-c", _BY_CTYPES, library, str(launches))
