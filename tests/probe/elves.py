"""ELF files made by the machine's C compiler."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.components import real

# `unsetenv_like` ends in a wanted name's letters; `cudaMallocArray` begins with one
SOURCE = """
int cudaLaunchKernel(void) { return 1; }
int cudaMalloc(void) { return 2; }
int cudaMallocArray(void) { return 3; }
int my_cudaFree(void) { return 4; }
static __attribute__((noinline, used)) int cudaMemcpy(void) { return 5; }
int cudaEventQuery = 6;
"""
MAIN = "int cudaLaunchKernel(void); int main(void) { return cudaLaunchKernel(); }"


def compiled(file: Path, source: str, *options: str) -> Path:
    """A file made of this source. gcc is asked for nothing beyond the options, so no optimisation."""
    ended = subprocess.run(
        [real("gcc"), "-x", "c", "-", "-x", "none", "-o", file, *options],
        input=source.encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return file


@contextmanager
def opened(file: Path) -> Iterator[int]:
    """A descriptor of the file."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
