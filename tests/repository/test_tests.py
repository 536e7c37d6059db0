"""Tests can be read as a list of what holds, each module says where its tests are, and files are made in one way."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from exporter.cli.commands import COMMANDS
from tests.repository.test_sizes import modules
from tests.support.places import ROOT

MOST_LETTERS_OF_A_NAME = 70
NAME = re.compile(r"^\s*(?:async )?def (test_\w+)", re.MULTILINE)
# `from a.b import c, d`, with or without parentheses, or `import a.b`, wherever it stands in the file
IMPORT = re.compile(r"^\s*(?:from (\S+) import (\([^)]*\)|.*)|import (\S+))", re.MULTILINE)
# the last line of a module's docstring, where its tests have another name than the module
NAMED = re.compile(r'^Tests: (tests/[\w/]+\.py(?:, tests/[\w/]+\.py)*)\.\n"""$', re.MULTILINE)


def long_names(text: str) -> list[str]:
    return [name for name in NAME.findall(text) if len(name) > MOST_LETTERS_OF_A_NAME]


# issue 27, part 5
def test_no_name_of_a_test_is_long() -> None:
    names = {str(path.relative_to(ROOT)): long_names(path.read_text()) for path in modules("tests")}
    assert {path: long for path, long in names.items() if long} == {}


@pytest.mark.parametrize("start", ["def ", "async def ", "class TestAll:\n    def "])
def test_a_long_name_is_noticed_wherever_it_stands(start: str) -> None:
    name = "test_" + "a" * 66
    assert long_names(f"{start}{name}(): pass") == [name]
    assert long_names(f"{start}{name[:-1]}(): pass") == []


def path_of(module: str) -> Path | None:
    """The file of this repository that a dotted name stands for."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@cache
def imported_by(path: Path) -> frozenset[Path]:
    """The files of this repository that a file imports."""
    text = path.read_text()
    names = {"exporter.__main__"} if '"-m", "exporter"' in text else set()
    for module, parts, whole in IMPORT.findall(text):
        names |= {module or whole, *(f"{module}.{part}" for part in re.findall(r"\w+", parts))}
    if path.name == "commands.py":  # each is imported when it is named
        names |= {*COMMANDS.values()}
    ours = (path_of(name) for name in names if name.startswith(("exporter.", "tests.")))
    return frozenset(file for file in ours if file)


@cache
def reached_by(path: Path) -> frozenset[Path]:
    """What a file imports, with what that imports, and so on."""
    reached: set[Path] = set()
    waiting = [path]
    while waiting:
        new = imported_by(waiting.pop()) - reached
        reached |= new
        waiting += new
    return frozenset(reached)


def named_tests(path: Path) -> Iterator[Path]:
    """A module's tests: those that its docstring names, else test_<module>.py, in the folder of its room or above."""
    if named := NAMED.search(path.read_text()):
        yield from (ROOT / name for name in named[1].split(", "))
        return
    room, *below = path.relative_to(ROOT / "exporter").parts[:-1] or [""]
    folders = [ROOT.joinpath("tests", room, *below[:depth]) for depth in range(len(below), -1, -1)]
    yield from [test for folder in folders if (test := folder / f"test_{path.name}").exists()][:1]


MODULES: Mapping[str, Path] = {
    str(path.relative_to(ROOT)): path for path in modules("exporter") if path.name != "__init__.py"
}


# issue 27, part 5
def test_each_module_says_where_its_tests_are() -> None:
    assert [name for name, path in MODULES.items() if not [*named_tests(path)]] == []


def test_the_tests_of_a_module_reach_it() -> None:
    tests = [(name, path, test) for name, path in MODULES.items() for test in named_tests(path)]
    assert [(name, test) for name, _, test in tests if not test.exists()] == []
    assert [(name, test) for name, path, test in tests if path not in reached_by(test)] == []


def test_a_test_that_does_not_reach_a_module_is_noticed() -> None:
    reached = reached_by(ROOT / "tests" / "model" / "test_memo.py")
    assert MODULES["exporter/model/memo.py"] in reached
    assert MODULES["exporter/web/server.py"] not in reached


# issue 27, part 5
def test_make_golden_is_the_one_way_to_make_a_file_anew() -> None:
    option = "--" + "update-golden"
    folders = ("tests", "docs", "deploy", "release")
    texts = [
        *ROOT.glob("*.md"),
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".yaml")),
    ]
    assert {path.relative_to(ROOT) for path in texts if option in path.read_text()} == {Path("tests/conftest.py")}


@pytest.mark.parametrize("target", ["test", "test-in-image", "test-on-kubernetes"])
def test_each_file_of_tests_that_a_target_names_exists(target: str) -> None:
    """A list in which one file has another name now makes pytest run nothing."""
    shown = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = set(re.findall(r"(?<![\w/.-])tests/[\w/.-]+", shown))
    assert len(names) > 2
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []
