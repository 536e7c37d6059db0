"""Tables and texts in Markdown, which all reference pages have."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_HEADER = "<!-- Made of the program by `make golden`: change what it is made of, not this file. -->"
# words of a help text that become code: flags, paths of the exporter, and names of metrics
_PATH = r"/(?:gpu/metrics|container/metrics|metrics/nodes|debug/\w+|metrics?|processes)(?![\w/])"
_CODE = re.compile(rf"(?<![\w`/-])(--[a-z][a-z.-]*[a-z]|{_PATH}|pod_gpu_\w+)(?!`)")
# a page of docs/, by its path in the repository
_PAGE = re.compile(r"\bdocs/([\w-]+\.md)")


class UndescribedError(Exception):
    """A source of the pages has no description of a path, a parameter or a field. The message names file and place."""


def description(of: Mapping[str, Any], where: str) -> str:
    """The description of an OpenAPI object.

    Raises:
        UndescribedError: the object has none.
    """
    text: str | None = of.get("description")
    if not text:
        raise UndescribedError(f"{where} has no description: write one, then run make golden again")
    return text


def document(title: str, *parts: str) -> str:
    """A page: its title, the note that it is generated, and its parts with empty lines between them."""
    return "\n\n".join((f"# {title}", _HEADER, *parts)) + "\n"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, whose cells are Markdown: see `code` and `prose`."""
    lines = (heads, ["---"] * len(heads), *rows)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def code(text: str) -> str:
    """A text as code for a table's cell; "" stays empty."""
    return "`" + text.replace("|", r"\|") + "`" if text else ""


def prose(text: str) -> str:
    """A sentence of the program for a table's cell. Flags, paths and families in it become code, pages links."""
    pieces = _CODE.split(" ".join(text.split()))
    return "".join(code(piece) if number % 2 else _escaped(piece) for number, piece in enumerate(pieces))


def sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, up to a semicolon if it has one."""
    return (docstring or "").partition("\n")[0].partition(". ")[0].partition(";")[0].rstrip(".") + "."


def _escaped(text: str) -> str:
    for mark, written in (("<", "&lt;"), ("|", r"\|"), ("*", r"\*")):
        text = text.replace(mark, written)
    return _PAGE.sub(r"[\1](\1)", text)
