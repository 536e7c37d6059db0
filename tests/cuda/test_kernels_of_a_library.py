"""What a real compiler builds here and now is what is read from the library, be it stripped or not."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.probe.cuda_binary import read_cuda_binary
from exporter.probe.elf import in_file
from tests.support.components import nvcc
from tests.support.cuda_binaries import CUDA, said_by_ptxas


# issue 13, part "CUDA binaries"
@pytest.mark.real
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_what_this_machines_nvcc_builds(tmp_path: Path, mode: str) -> None:
    library = tmp_path / "libkernels.so"
    said = subprocess.run(
        [nvcc(), "-arch=sm_90", "-shared", "-Xcompiler=-fPIC", "-Xptxas=-v", "-Xfatbin=-compress-all",
         f"-compress-mode={mode}", "-cudart=none", "-o", library, CUDA / "kernels.cu"],
        capture_output=True, text=True, check=True, timeout=50,
    ).stderr  # fmt: skip
    with library.open("rb") as file:
        binary = read_cuda_binary(in_file(file.fileno()))
    kernels = {found.kernel.name: replace(found.kernel, code_bytes=0) for found in binary.kernels}
    assert kernels == said_by_ptxas(said, 90)
    assert (binary.cubins, binary.ptx, dict(binary.unread)) == (("90",), ("90",), {})
    subprocess.run(["strip", library], check=True)
    with library.open("rb") as file:
        assert read_cuda_binary(in_file(file.fileno())) == binary
