"""NVIDIA's compiler, as tests/get-cuda-compiler unpacks it or as it is installed, without a GPU."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.components import cudart, nvcc

PROGRAM = """
#include <cstdio>
__global__ void add(float *numbers) { numbers[threadIdx.x] += 1; }
int main() {
    void *place = nullptr;
    int allocated = cudaMalloc(&place, 1024);
    add<<<4, 64>>>(static_cast<float *>(place));
    std::printf("%d %d\\n", allocated, cudaGetLastError());
}
"""


@pytest.mark.real
def test_it_makes_programs_that_call_the_real_library(tmp_path: Path) -> None:
    source = tmp_path / "program.cu"
    source.write_text(PROGRAM)
    subprocess.run([nvcc(), source, "-o", tmp_path / "program", "-cudart", "shared"], check=True, capture_output=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(cudart().parent)}
    linked = subprocess.run(["ldd", tmp_path / "program"], env=environment, capture_output=True, text=True, check=True)
    (library,) = re.findall(r"libcudart\.so\.13 => (\S+)", linked.stdout)
    assert Path(library).samefile(cudart())
    said = subprocess.run([tmp_path / "program"], env=environment, capture_output=True, text=True, check=True)
    # without a driver each call fails, and with one none does
    allocated, launched = map(int, said.stdout.split())
    assert (allocated == 0) is (launched == 0)
