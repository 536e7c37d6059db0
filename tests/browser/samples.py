"""Samples of what the program prints, in the pages of the docs: each block behind a mark is made anew.

A mark is `<!-- made by make pictures: NAME -->`, on a line of its own above the block.
"""

import re
from pathlib import Path

_BLOCK = r"(<!-- made by make pictures: {} -->\n```\n)(.*?)(^```$)"


def _find(text: str, name: str) -> re.Match[str]:
    return next(re.finditer(_BLOCK.format(re.escape(name)), text, re.MULTILINE | re.DOTALL))


def sample(page: Path, name: str) -> str:
    """The block behind the mark. Raises StopIteration: the page has no such mark, or no block behind it."""
    return _find(page.read_text(), name)[2]


def put(page: Path, name: str, lines: list[str]) -> None:
    """Write the block behind the mark anew. Raises StopIteration: the page has no such mark, or no block behind it."""
    text = page.read_text()
    block = _find(text, name)
    written = "".join(f"{line.rstrip()}\n" for line in lines)
    page.write_text(text[: block.start(2)] + written + text[block.end(2) :])
