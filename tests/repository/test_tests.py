"""Tests can be read as a list of what holds, and what they are held to is made in one way."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.test_sizes import modules, nodes_of
from tests.support.places import ROOT

MOST_LETTERS_OF_A_NAME = 70


def long_names(nodes: tuple[ast.AST, ...]) -> Iterator[str]:
    for node in nodes:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("test_") and len(node.name) > MOST_LETTERS_OF_A_NAME:
            yield node.name


# issue 27, part 5
def test_no_name_of_a_test_is_long() -> None:
    assert [
        f"{path.relative_to(ROOT)}: {name}" for path in modules("tests") for name in long_names(nodes_of(path))
    ] == []


@pytest.mark.parametrize("start", ["def ", "async def ", "class TestAll:\n    def "])
def test_a_long_name_is_noticed_wherever_it_stands(start: str) -> None:
    name = "test_" + "a" * 66
    assert [*long_names((*ast.walk(ast.parse(f"{start}{name}(): pass")),))] == [name]
    assert [*long_names((*ast.walk(ast.parse(f"{start}{name[:-1]}(): pass")),))] == []


# issue 27, part 5
def test_make_golden_is_the_one_way_to_make_a_file_anew() -> None:
    option = "--" + "update-golden"
    folders = ("tests", "docs", "deploy", "release")
    texts = [
        *ROOT.glob("*.md"),
        *(path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in (".md", ".py", ".yaml")),
    ]
    assert {path.relative_to(ROOT) for path in texts if option in path.read_text()} == {Path("tests/conftest.py")}
