"""No file and no function grows so long that nobody reads it whole."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

MOST_LINES = 450
MOST_LINES_OF_A_FUNCTION = 60


def sources() -> Iterator[Path]:
    """What is written by hand and shipped, released with or measured with."""
    for folder in ("exporter", "release", "benchmarks", "deploy/grafana/generator", "docs/generator"):
        yield from (path for path in (ROOT / folder).rglob("*.py") if "_gen" not in path.parts)
    yield ROOT / "deploy" / "make-inventory"


# issue 8, line 3
def test_no_file_is_long() -> None:
    lines = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert {path: count for path, count in lines.items() if count > MOST_LINES} == {}


# issue 8, line 3
def test_no_function_is_long() -> None:
    functions = [
        (path.name, node.name, (node.end_lineno or 0) - node.lineno + 1)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [function for function in functions if function[2] >= MOST_LINES_OF_A_FUNCTION] == []
