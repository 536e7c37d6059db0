"""The walls of the house: import-linter's contracts, in pyproject.toml, refuse what does not belong.

They are put to the test on a copy of the program, with intruders in it. A room without a floor is tried alone: of a
contract that does not know a room, import-linter says nothing else.
"""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Collection
from dataclasses import dataclass
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import grimp
import pytest

from tests.support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class Intruder:
    path: str
    text: str
    refused_by: tuple[str, ...]


INTRUDERS = {
    "a source with libraries of its own": Intruder(
        path="exporter/sources/intruder_with_libraries.py",
        text="import aiohttp\nimport grpc\nimport pynvml\n",
        refused_by=(
            "NVIDIA's bindings live in the source of NVML",
            "grpc and protobuf live in the kubelet's sources",
            "aiohttp lives in web",
        ),
    ),
    "an output that reads a file": Intruder(
        path="exporter/outputs/intruder_that_reads.py",
        text='from pathlib import Path\n\nMODEL = Path("/proc/cpuinfo").read_text()\n',
        refused_by=("Outputs do no I/O",),
    ),
    "an output that knows another": Intruder(
        path="exporter/outputs/intruder_that_knows_another.py",
        text="from exporter.outputs import containers\n",
        refused_by=("Outputs do not know each other",),
    ),
    "a source that knows another": Intruder(
        path="exporter/sources/intruder_that_knows_another.py",
        text="from exporter.sources import driver_inventory\n",
        refused_by=("Sources do not know each other",),
    ),
    "a web that imports the simulator": Intruder(
        path="exporter/web/intruder.py",
        text="from exporter.simulator.world import World\n",
        refused_by=("Nothing that runs on a node carries the simulator",),
    ),
    "a command that reads the generated code": Intruder(
        path="exporter/cli/intruder.py",
        text="from exporter._gen import pods_pb2\n",
        refused_by=("The generated code is imported by",),
    ),
    "an operator that knows the cluster role": Intruder(
        path="exporter/operator/intruder.py",
        text="from exporter.cluster.scaling import METRICS_TO_ASK\n",
        refused_by=("Floors import downwards only", "The operator carries nothing that only a node"),
    ),
    "a model that looks at the clock": Intruder(
        path="exporter/model/intruder.py",
        text="import time\n",
        refused_by=("The pure core does no I/O",),
    ),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "300"},
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(ROOT / "exporter", folder / "exporter", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


# issue 8, line 3
def test_the_house_as_it_is_passes(copy: Path) -> None:
    ended = lint(copy)
    assert (ended.returncode, "0 broken" in ended.stdout) == (0, True), ended.stdout + ended.stderr


def complaints_about(copy: Path, intruders: Collection[Intruder]) -> dict[str, str]:
    """By the name of each contract that is broken, what is said of it."""
    paths = [copy / intruder.path for intruder in intruders]
    for path, intruder in zip(paths, intruders, strict=True):
        path.write_text(f'"""Does not belong here."""\n\n{intruder.text}')
    try:
        ended = lint(copy)
    finally:
        for path in paths:
            path.unlink()
    assert ended.returncode == 1, ended.stdout + ended.stderr
    _, _, broken = ended.stdout.partition("Broken contracts\n")
    # a name is underlined
    _, *parts = re.split(r"^(\S.*)\n-{5,}$", broken, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture(scope="module")
def complaints(copy: Path) -> dict[str, str]:
    return complaints_about(copy, INTRUDERS.values())


# issue 8, line 3
@pytest.mark.parametrize("name", INTRUDERS)
def test_an_intruder_is_refused_by_the_walls_that_it_breaks(complaints: dict[str, str], name: str) -> None:
    intruder = INTRUDERS[name]
    module = intruder.path.removesuffix(".py").replace("/", ".")
    for wall in intruder.refused_by:
        (says,) = (text for contract, text in complaints.items() if contract.startswith(wall))
        assert re.search(rf"^- +{re.escape(module)} -> ", says, re.MULTILINE), complaints


# issue 8, line 3
def test_a_room_without_a_floor_is_refused(copy: Path) -> None:
    room = Intruder(
        path="exporter/intruder.py",
        text="from exporter.cli.main import run\n",
        refused_by=("Floors import downwards only",),
    )
    complaints = complaints_about(copy, [room])
    assert (*complaints,) == room.refused_by
    assert "- exporter.intruder\n" in complaints[room.refused_by[0]]


def test_the_lint_refuses_an_output_that_opens_a_file_without_an_import() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--stdin-filename", "exporter/outputs/intruder.py", "-"],
        input='"""Does not belong here."""\n\nMODEL = open("/proc/cpuinfo").read()\n',
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert (ended.returncode, "PTH123" in ended.stdout) == (1, True), ended.stdout


def graph() -> grimp.ImportGraph:
    """Imports inside functions and for types alone count too."""
    return grimp.build_graph("exporter", include_external_packages=True, cache_dir=None)


def ours(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] == "exporter"


def plain(distribution: str) -> str:
    return distribution.lower().replace("_", "-")


def names_in(requirements: list[str]) -> set[str]:
    return {plain(re.split(r"[<>=~!\[; ]", line, maxsplit=1)[0]) for line in requirements}


def test_every_dependency_has_a_room_and_no_other_package_is_imported() -> None:
    required = names_in(PROJECT["project"]["dependencies"])
    belongs_to = {
        module: {plain(name) for name in distributions} & required
        for module, distributions in packages_distributions().items()
    }
    outside = {name for name in graph().modules if not ours(name)} - sys.stdlib_module_names
    for name in outside:
        assert belongs_to.get(name), f"{name} is imported, and no line of [project.dependencies] brings it"
    used = {distribution for name in outside for distribution in belongs_to[name]}
    assert required <= used, "one is not used"
    walled = {
        name
        for contract in PROJECT["tool"]["importlinter"]["contracts"]
        if contract["type"] == "forbidden" and contract["source_modules"] == ["exporter"]
        for name in contract["forbidden_modules"]
    }
    assert outside == walled, "a package without a contract in pyproject.toml that names its room"


# issue 8, line 3
def test_no_module_imports_itself_in_a_circle() -> None:
    imports = graph()
    TopologicalSorter(
        {
            name: {found for found in imports.find_modules_directly_imported_by(name) if ours(found)}
            for name in imports.modules
            if ours(name)
        }
    ).prepare()  # raises CycleError, with the circle
