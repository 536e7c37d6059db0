"""A table in kubectl's style: columns with three spaces between, and no lines.

Tests: tests/kubectl/test_parts.py.
"""

from collections.abc import Iterable, Sequence

from exporter.wording import escaped

_BETWEEN = "   "


def plain_table(cells: Sequence[Sequence[str]], remarks: Iterable[str] = ()) -> str:
    """The text of a table, its titles first, and the remarks below it. Each line is safe to show, and has an end."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = (_BETWEEN.join(map(str.ljust, line, widths)).rstrip() for line in cells)
    return "".join(f"{escaped(line)}\n" for line in (*padded, *remarks))
