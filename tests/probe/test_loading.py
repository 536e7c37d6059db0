"""Loading the program into the kernel: by another way than this machine's, without libbpf, and where it is refused."""

from pathlib import Path

import pytest

from exporter.errors import SourceError
from exporter.probe import functions, gate, libbpf
from exporter.probe.probe import Probe
from tests.cuda.probing import NarrowProc, is_true, probing
from tests.cuda.programs import Program

# to detach takes the kernel some 50 ms for each
CALLED = frozenset({"cudaMalloc", "cudaLaunchKernel", "cudaMemcpy", "cudaStreamSynchronize"})


def test_places_are_attached_one_by_one_before_linux_6_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "AT_ONCE_KERNEL", (1000, 0))
    monkeypatch.setattr(functions, "WANTED", {**functions.WANTED, "cudart": CALLED})
    proc = NarrowProc(tmp_path)
    script = "repeat 3; launch 1 2 1 1 8 1 1 1000000; end; malloc 1 300; copy 2 9; sync 1; launch 1 1 1 1 1 1 1 -98"
    with probing(proc.folder) as probe, Program(script) as program:
        proc.show(program.pid)
        probe.scan()
        truth = program.done()
        is_true(probe.read(), truth)


@pytest.mark.parametrize(
    ("name", "most", "says"),
    [
        ("libbpf.so.0", {}, "needs libbpf.so.1: libbpf.so.0: cannot open shared object file"),
        (libbpf.NAME, {"threads": (1 << 31) - 1}, r"do not fit into memory \(loading the program into the kernel: "),
    ],
)
def test_what_keeps_it_from_being_loaded_is_said_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: dict[str, int], says: str
) -> None:
    with probing(NarrowProc(tmp_path).folder):
        pass  # where the machine lets it
    monkeypatch.setattr(libbpf, "NAME", name)
    for _ in range(2):
        with pytest.raises(SourceError, match=says) as raised:
            Probe.open(proc=tmp_path, most_programs=1, any_kernel=False, most=most)
        assert "\n" not in str(raised.value)
