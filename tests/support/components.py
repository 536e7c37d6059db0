"""Real components beside the exporter: Debian's Prometheus and others, NVIDIA's compiler."""

import os
import random
import shutil
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.places import ROOT

# promtool's exit code for pages that parse but break its style: dcgm's names do, and so does the label modelName
LINT = 3
# What a package of Debian 12 has is too old: its kubectl knows no components.
NOT_OF_DEBIAN = {"kubectl": "put one of Kubernetes 1.26 or later into the PATH"}


def real(program: str, *other_names: str) -> Path:
    """A real component. In CI a missing one is a failure; elsewhere the test is skipped and says so."""
    unpacked = ROOT / ".cache" / "real" / "usr" / "bin" / program
    if unpacked.exists():
        return unpacked
    for name in (program, *other_names):
        if found := shutil.which(name):
            return Path(found)
    get = NOT_OF_DEBIAN.get(program, "run tests/get-real-components .cache/real, or `make test`")
    raise _missing(f"{program} is missing: {get}")


def newer(program: str) -> Path:
    """Debian 14's `prometheus` (3) or `victoria-metrics`, or `rotel-agent`; what is installed is older. As `real`."""
    unpacked = ROOT / ".cache" / "real" / "newer" / "usr" / "bin" / program
    if unpacked.exists():
        return unpacked
    raise _missing(f"{program} is missing: run tests/get-real-components .cache/real, or `make test`")


def nvcc() -> Path:
    """NVIDIA's compiler of CUDA 13, called by its whole path; `-cudart shared` links with `cudart`. As `real`."""
    return _cuda() / "bin" / "nvcc"


def cudart() -> Path:
    """NVIDIA's own libcudart.so.13. Its folder is what LD_LIBRARY_PATH wants. As `real`."""
    return _cuda() / "lib64" / "libcudart.so.13"


def _cuda() -> Path:
    """Where CUDA 13 is: what tests/get-cuda-compiler has unpacked, or what is installed."""
    for folder in (ROOT / ".cache" / "real" / "cuda", Path("/usr/local/cuda")):
        if (folder / "bin" / "nvcc").exists() and (folder / "lib64" / "libcudart.so.13").exists():
            return folder
    raise _missing("CUDA 13 is missing: run tests/get-cuda-compiler .cache/real/cuda, or `make test`")


def _missing(what: str) -> BaseException:
    kind = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
    return kind.Exception(what)


def free_port() -> int:
    """A loopback port that nobody listens on, for a program that cannot pick its own.

    It is none of those that the kernel gives to clients and to who binds port 0: one of these may be taken again before
    the program has begun to listen.
    """
    chance = random.SystemRandom()  # tests seed the module's own, and several processes run tests
    for _ in range(100):
        with suppress(OSError), socket.create_server(("127.0.0.1", chance.randrange(10_000, 32_768))) as listening:
            return int(listening.getsockname()[1])
    raise AssertionError("a hundred ports are taken")


def check(promtool: Path, page: bytes) -> tuple[int, list[str]]:
    """Promtool's exit code for a page, and its lines."""
    ended = subprocess.run([promtool, "check", "metrics"], input=page, capture_output=True, check=False, timeout=30)
    return ended.returncode, (ended.stdout + ended.stderr).decode().splitlines()
