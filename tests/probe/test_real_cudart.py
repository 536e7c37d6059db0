"""The probe over NVIDIA's own libcudart.so.13. Where there is no driver, as in CI, every call of it fails."""

from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from exporter.model.cuda import CudaCounts
from tests.cuda.probing import NarrowProc, counted, probing
from tests.cuda.real_runtime import Codes, Told, by_ctypes, by_nvcc, hello

LAUNCHES = 7
THREADS_OF_ALL_LAUNCHES = LAUNCHES * 4 * 2 * 32 * 2


def of_nvcc() -> AbstractContextManager[Told]:
    return by_nvcc(LAUNCHES)


def of_python() -> AbstractContextManager[Told]:
    return by_ctypes(hello().runtime, LAUNCHES)


def calls(codes: Codes, *functions: str) -> int:
    """How often these were called."""
    return sum(sum(codes.get(function, {}).values()) for function in functions)


def fit(counts: CudaCounts, codes: Codes) -> None:
    errors: Counter[int] = Counter()
    for of_function in codes.values():
        errors.update({code: times for code, times in of_function.items() if code})
    assert dict(counts.errors) == dict(errors)
    assert counts.launches == calls(codes, "cudaLaunchKernel") == LAUNCHES
    assert counts.threads == THREADS_OF_ALL_LAUNCHES * codes["cudaLaunchKernel"].get(0, 0) // LAUNCHES
    assert counts.failed_allocations + counts.allocations == calls(codes, "cudaMalloc") == 3
    assert sum(counts.copies) == calls(codes, "cudaMemcpy") == 2
    assert counts.syncs == calls(codes, "cudaStreamSynchronize", "cudaDeviceSynchronize")


# issue 13, "Must show" 2
@pytest.mark.parametrize("started", [of_nvcc, of_python])
def test_launches_and_errors_by_code_are_exact(tmp_path: Path, started: object) -> None:
    assert callable(started)
    proc = NarrowProc(tmp_path)
    with probing(proc.folder) as probe, started() as program:
        proc.show(program.pid)
        probe.scan()
        assert probe.read().programs >= 1
        codes = program.codes()
        turn = probe.read()
    assert set(codes["cudaLaunchKernel"]) <= {0, 35, 100}
    fit(counted(turn, program.pid)[0], codes)
    assert not any(turn.reading.lost.values())
