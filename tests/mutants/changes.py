"""A change of one file of the program, and the lines of it that tests must reach to notice the change."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import TypeGuard

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Change:
    """Bytes `begin` to `end` of a file are replaced with `text`.

    `path` is relative to the repository. `lines` are the first and the last line of the program that are changed, and
    `scope` names the function or class around them ("" for none).
    """

    path: str
    begin: int
    end: int
    text: bytes
    lines: tuple[int, int]
    scope: str
    name: str = ""

    def source(self) -> str:
        """The whole file, changed."""
        data = source_of(self.path)
        return (data[: self.begin] + self.text + data[self.end :]).decode()

    @property
    def place(self) -> str:
        """Where it is: file, line and function."""
        return f"{self.path}:{self.lines[0]} {self.scope}"

    def is_valid(self) -> bool:
        """Whether the changed file is Python, and another program."""
        try:
            changed = ast.parse(self.source())
        except SyntaxError:
            return False
        return ast.dump(changed) != ast.dump(tree_of(self.path))

    def old_and_new(self) -> tuple[str, str]:
        """The lines that differ, each without the space around it, joined by a space."""
        first = source_of(self.path).count(b"\n", 0, self.begin)
        old = source_of(self.path).decode().splitlines()[first : self.lines[1]]
        rest = len(source_of(self.path).decode().splitlines()) - self.lines[1]
        changed = self.source().splitlines()
        new = changed[first : len(changed) - rest]
        return " ".join(line.strip() for line in old), " ".join(line.strip() for line in new)

    def diff(self) -> str:
        """The change as a diff, with its place above it."""
        before, after = source_of(self.path).decode().splitlines(), self.source().splitlines()
        lines = list(unified_diff(before, after, n=1, lineterm=""))[3:]
        return "\n".join([self.place, *(f"    {line}" for line in lines)])


@cache
def source_of(path: str) -> bytes:
    """The bytes of a file of the repository."""
    return (ROOT / path).read_bytes()


@cache
def tree_of(path: str) -> ast.Module:
    """The syntax tree of a file of the repository."""
    return ast.parse(source_of(path))


def lines_that_reach(change: Change) -> range:
    """The lines from the start of the changed statement to its last changed line: who runs it runs one of them."""
    first, last = change.lines
    begins = [node.lineno for node in ast.walk(tree_of(change.path)) if _holds(node, first)]
    return range(max(begins, default=first), last + 1)


def _holds(node: ast.AST, line: int) -> TypeGuard[ast.stmt]:
    return isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)


@cache
def scope_at(path: str, line: int) -> str:
    """The name of the innermost function or class around a line, with those around it; "" outside of all."""
    return ".".join(_scopes(tree_of(path), line))


def _scopes(node: ast.AST, line: int) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if _holds(child, line) and isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        if not isinstance(child, ast.stmt) or _holds(child, line):
            yield from _scopes(child, line)
