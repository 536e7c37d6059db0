"""Where the probe may run, and what it says where it may not."""

import errno
from pathlib import Path

import pytest

from exporter.errors import SourceError
from exporter.probe import gate
from exporter.probe.gate import ProbedMachine
from exporter.probe.libbpf import BpfError

GOOD = ProbedMachine(release="6.8.0-45-generic", architecture="x86_64", types=True)


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled program, whatever this checkout has."""
    file = tmp_path / "cuda.bpf.o"
    file.touch()
    monkeypatch.setattr(gate, "program_file", lambda _: file)
    return file


@pytest.mark.parametrize("release", ["5.15.0", "5.15", "6.8.0-45-generic", "10.0-rc1"])
def test_a_kernel_that_is_new_enough(release: str) -> None:
    gate.check(GOOD._replace(release=release), any_kernel=False)


@pytest.mark.parametrize(
    ("machine", "says"),
    [
        (
            GOOD._replace(release="5.14.0-427.el9.x86_64"),
            "needs Linux 5.15 or later, and this is 5.14.0-427.el9.x86_64",
        ),
        (GOOD._replace(release="odd"), "needs Linux 5.15 or later, and this is odd"),
        (
            GOOD._replace(architecture="aarch64", release="5.17.0"),
            "needs Linux 5.18 or later, and this is 5.17.0",
        ),
        (GOOD._replace(types=False), "does not tell the types"),
    ],
)
def test_what_may_be_overridden(machine: ProbedMachine, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        gate.check(machine, any_kernel=False)
    gate.check(machine, any_kernel=True)


def test_an_architecture_whose_calls_it_cannot_read() -> None:
    for any_kernel in (False, True):
        with pytest.raises(SourceError, match="this is riscv64"):
            gate.check(GOOD._replace(architecture="riscv64"), any_kernel=any_kernel)


def test_an_installation_without_the_program(program: Path) -> None:
    program.unlink()
    with pytest.raises(SourceError, match=r"has no cuda\.bpf\.o") as raised:
        gate.check(GOOD, any_kernel=True)
    assert "make probe" in raised.value.trouble.remedy


# issue 13, "Must show" 8
@pytest.mark.parametrize(
    ("number", "reason", "remedy"),
    [
        (errno.EPERM, "permission", "BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH"),
        (errno.EACCES, "permission", "BPF, PERFMON, SYS_PTRACE and DAC_READ_SEARCH"),
        (errno.ENOMEM, "refused", "memory limit"),
        (errno.EINVAL, "refused", "--probe.mode off"),
    ],
)
def test_refusals_of_the_kernel(number: int, reason: str, remedy: str) -> None:
    trouble = gate.refused(BpfError("loading", number, "libbpf: no")).trouble
    assert trouble.reason == reason
    assert remedy in trouble.remedy
    assert "\n" not in str(trouble)


def test_this_machine_is_told_by_the_kernel() -> None:
    assert gate.kernel_version(gate.this_machine().release) > (3, 0)
