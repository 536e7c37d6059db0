"""Before any program is probed, one of our own is: under a seccomp filter that does not know uretprobe(2)."""

from collections.abc import Iterator

import pytest

from exporter.errors import Unsupported
from exporter.probe import functions, gate
from exporter.probe.gate import ProbedMachine
from exporter.probe.libbpf import Object
from tests.cuda.needs import lacking, root

RISKY = ProbedMachine(release="6.11.0-9-generic", architecture="x86_64", types=True)


@pytest.fixture
def loaded() -> Iterator[Object]:
    root()
    machine = gate.this_machine()
    if not gate.program_file(machine).exists():
        lacking("the probe's program (make probe)")
    at_once = gate.kernel_version(machine.release) >= gate.AT_ONCE_KERNEL
    loaded = Object(
        gate.program_file(machine),
        {},
        (functions.ENTERED, functions.RETURNED, functions.SET_ENVIRONMENT),
        at_once=at_once,
    )
    yield loaded
    loaded.close()


def test_this_kernel(loaded: Object) -> None:
    gate.check_survival(loaded, RISKY)


def test_a_kernel_on_which_the_child_dies(loaded: Object) -> None:
    with pytest.raises(Unsupported, match="probed programs die where a seccomp filter is in force"):
        gate.check_survival(loaded, RISKY, "import os; os.kill(os.getpid(), 11)")


def test_a_child_that_could_not_test_it(loaded: Object) -> None:
    with pytest.raises(Unsupported, match=r"could not be tested \(exit code 3\)"):
        gate.check_survival(loaded, RISKY, "raise SystemExit(3)")


def test_a_child_that_somebody_else_has_killed(loaded: Object) -> None:
    with pytest.raises(Unsupported, match=r"could not be tested \(exit code -9\)"):
        gate.check_survival(loaded, RISKY, "import os; os.kill(os.getpid(), 9)")


@pytest.mark.parametrize("machine", [RISKY._replace(release="6.8.0"), RISKY._replace(architecture="aarch64")])
def test_where_there_is_no_such_system_call(loaded: Object, machine: ProbedMachine) -> None:
    gate.check_survival(loaded, machine, "import os; os.kill(os.getpid(), 11)")
