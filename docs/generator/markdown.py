"""What the reference pages have in common: tables and texts in Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HEADER = "<!-- Made of the program by `make reference`: change what it is made of, not this file. -->"
# what is code wherever it stands in a help text: flags, paths of the exporter, and names of metrics
_PATH = r"/(?:gpu/metrics|container/metrics|metrics/nodes|debug/\w+|metrics?|processes)(?![\w/])"
_CODE = re.compile(rf"(?<![\w`/-])(--[a-z][a-z.-]*[a-z]|{_PATH}|pod_gpu_\w+)(?!`)")


class UndescribedError(Exception):
    """A source of the pages describes a path, a parameter or a field by nothing; the message names file and place."""


def description(of: Mapping[str, Any], where: str) -> str:
    """What an OpenAPI object says of itself.

    Raises:
        UndescribedError: it says nothing.
    """
    text: str | None = of.get("description")
    if not text:
        raise UndescribedError(f"{where} has no description: write one, then run make reference again")
    return text


def document(title: str, *parts: str) -> str:
    """A page: its title, the note that it is made, and its parts with an empty line between them."""
    return "\n\n".join((f"# {title}", _HEADER, *parts)) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. Its cells are Markdown already: see `code` and `prose`."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def code(text: str) -> str:
    """A text as code, as it may stand in a table; "" stays empty."""
    return "`" + text.replace("|", r"\|") + "`" if text else ""


def prose(text: str) -> str:
    """A sentence of the program's, as it may stand in a table; flags, paths and families in it are code."""
    pieces = _CODE.split(" ".join(text.split()))
    return "".join(code(piece) if number % 2 else _escaped(piece) for number, piece in enumerate(pieces))


def sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, or what of it stands before a semicolon."""
    return (docstring or "").partition("\n")[0].partition(". ")[0].partition(";")[0].rstrip(".") + "."


def _escaped(text: str) -> str:
    for mark, written in (("<", "&lt;"), ("|", r"\|"), ("*", r"\*")):
        text = text.replace(mark, written)
    return text
