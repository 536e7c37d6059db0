"""The map of rooms in docs/developers/design.md: the first line of each room's docstring, floor by floor.

The floors are those of the contract "Floors import downwards only" in pyproject.toml, which has every room.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from docs.generator.markdown import UndescribedError, code, prose, table

_ROOT = Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "developers" / "design.md"
_BEGIN = "<!-- Made by `make reference` of the rooms' first lines: change those. -->\n"
_END = "<!-- The end of what is made. -->\n"


def page() -> str:
    """The page as it is, with the table made anew between its two marks."""
    before, begin, rest = _PAGE.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise UndescribedError(f"docs/developers/design.md has no two lines {_BEGIN.strip()} and {_END.strip()}")
    rows = [(floor, code(room), prose(_first_line(path))) for floor, room, path in _rooms()]
    return f"{before}{begin}\n{table(('floor', 'room', 'has'), rows)}\n\n{end}{after}"


def _rooms() -> Iterator[tuple[str, str, Path]]:
    """The floor's number, the room and the file with its docstring, from the top floor down. Folders have their own."""
    contracts = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (floors,) = (found["layers"] for found in contracts if found["name"] == "Floors import downwards only")
    exporter = _ROOT / "exporter"
    for number, floor in zip(range(len(floors), 0, -1), floors, strict=True):
        for name in sorted(floor.split(" | ")):
            if (module := exporter / f"{name}.py").exists():
                yield str(number), module.name, module
                continue
            for path in sorted((exporter / name).rglob("__init__.py")):
                yield str(number), f"{path.parent.relative_to(exporter)}/", path


def _first_line(path: Path) -> str:
    """The first line of a module's docstring.

    Raises:
        UndescribedError: the module has no docstring.
    """
    docstring = ast.get_docstring(ast.parse(path.read_text()))
    if not docstring:
        raise UndescribedError(f"{path.relative_to(_ROOT)} has no docstring: its first line says what the room has")
    return docstring.partition("\n")[0].rstrip(".")
