"""The columns of a table, chosen and cut for the width of a terminal.

A narrow terminal drops the least important columns, one after the other. The room that is left goes first to the texts
that lack fewest characters, so that one very long name takes nothing from the others, and then to the bars.

Tests: tests/top/test_parts.py.
"""

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from itertools import islice
from typing import Generic, NamedTuple, TextIO, TypeVar

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style

MOST_CHARS = 400  # of a text: Kubernetes' names have at most 253 characters, but a command line may have thousands
# Control characters, formats (bidirectional marks, joiners), surrogates, private, unassigned, line and paragraph ends.
_UNSAFE = frozenset(["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
_STACKED = frozenset(["Mn", "Me"])  # accents, any number of which combine with the letter before them
_RIGHT_TO_LEFT = frozenset(["R", "AL", "AN"])  # such a character may make a terminal reverse the rest of the line
GAP = 1
MOST_MEASURED = 2000  # the widths fit the first rows, up to this many; a text of a later row may be cut
Row = TypeVar("Row")
# These are the sixteen colours that users choose for their terminals, so texts are readable on light and dark.
_STYLES = {
    name: Style.parse(text)
    for name, text in {
        "title": "bold",
        "head": "bold reverse",
        "status": "reverse",
        "label": "bold",
        "dim": "dim",
        "idle": "bold black on yellow",
        "idle.number": "bold yellow",
        "idle.owner": "yellow",
        "owner": "cyan",
        "load": "green",
        "busy": "bold green",
        "memory": "blue",
        "full": "magenta",
        "warn": "yellow",
        "bad": "bold red",
        "good": "green",
    }.items()
}
_COLORS = {"standard": ColorSystem.STANDARD, "256": ColorSystem.EIGHT_BIT, "truecolor": ColorSystem.TRUECOLOR}


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """The characters other than letters and digits. `bar` has the parts of a cell, from the least to a whole one."""

    bar: str = "▏▎▍▌▋▊▉█"
    ellipsis: str = "…"
    unknown: str = "\N{REPLACEMENT CHARACTER}"
    branch: str = "├"
    last: str = "└"
    degrees: str = "°C"
    down: str = "▼"
    up: str = "▲"
    dot: str = "·"
    chart: str = "▁▂▃▄▅▆▇█"
    cells: str = "█▓░·!?X"


UNICODE = Glyphs()
ASCII = Glyphs(
    bar="#",
    ellipsis="~",
    unknown="?",
    branch="|",
    last="`",
    degrees="C",
    down="v",
    up="^",
    dot="-",
    chart="_.-:=+*#",
    cells="#=-.!?X",
)


@lru_cache(maxsize=4096)
def harmless(text: str, glyphs: Glyphs) -> str:
    """A text on one line, of printable left-to-right characters; only of ASCII if the glyphs are ASCII."""
    if text.isascii() and text.isprintable():
        return text[:MOST_CHARS]
    shown = []
    for char in unicodedata.normalize("NFC", text[:MOST_CHARS]):
        category = unicodedata.category(char)
        if category in _STACKED:
            continue
        is_safe = category not in _UNSAFE and unicodedata.bidirectional(char) not in _RIGHT_TO_LEFT
        is_safe = is_safe and (glyphs is not ASCII or char.isascii())
        # other kinds of spaces have other widths, so all become a plain one
        shown.append((" " if category == "Zs" else char) if is_safe else glyphs.unknown)
    return "".join(shown)


def width_of(text: str) -> int:
    """The number of cells that a harmless text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int, glyphs: Glyphs, *, keeps_end: int = 0) -> str:
    """A text cut to `width` cells. An ellipsis stands for the rest, before the last `keeps_end` characters."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    end = text[-keeps_end:] if keeps_end and width > 2 * keeps_end + 1 else ""
    left = width - width_of(glyphs.ellipsis) - width_of(end)
    kept = []
    for char in text:
        left -= width_of(char)
        if left < 0:
            break
        kept.append(char)
    return "".join(kept) + glyphs.ellipsis + end


def pad(text: str, width: int, *, right: bool = False) -> str:
    """A text filled up to a width with spaces after it, or before it with `right`."""
    space = " " * (width - width_of(text))
    return space + text if right else text + space


def bar(ratio: float, width: int, glyphs: Glyphs) -> str:
    """A bar of at most `width` cells, without spaces after it. A ratio above 0 always shows something."""
    parts = len(glyphs.bar)
    ratio = min(max(ratio, 0.0), 1.0)
    eighths = round(ratio * width * parts)
    if ratio and not eighths:
        eighths = 1
    whole, rest = divmod(eighths, parts)
    return glyphs.bar[-1] * whole + (glyphs.bar[rest - 1] if rest else "")


class TextCell(NamedTuple):
    """A cell of a table: a text with its style, or a bar that is filled by `ratio` (0 to 1).

    `short` replaces a text that has no room. Without it, the text is cut.
    """

    text: str = ""
    style: str = ""
    ratio: float | None = None
    short: str = ""


EMPTY = TextCell()


class TextSpan(NamedTuple):
    """A part of a line: a text and the name of its style, "" for none."""

    text: str
    style: str = ""


Line = Sequence[TextSpan]


@dataclass(frozen=True, slots=True, eq=False)
class TopColumn(Generic[Row]):
    """A column of a table.

    Attributes:
        title: its title.
        worth: its place in the order in which columns are chosen; 0 is chosen first.
        cell: makes the cell of a row.
        least: its least width, unless its widest text is narrower.
        most: its greatest width.
        right: whether texts are aligned at the right.
        is_bar: whether it has bars.
        is_extra: whether it is shown only if all other columns have their full width.
        keeps_end: the number of last characters that a cut text keeps. The end of a pod's name tells it from its
            siblings.
    """

    title: str
    _: KW_ONLY
    worth: int
    cell: Callable[[Row], TextCell]
    least: int = 99
    most: int = 99
    right: bool = False
    is_bar: bool = False
    is_extra: bool = False
    keeps_end: int = 0


def fit(columns: Sequence[TopColumn[Row]], rows: Iterable[Row], width: int) -> Mapping[TopColumn[Row], int]:
    """The chosen columns in their order, with their widths. A column that is empty in every row is left out."""
    natural = _natural(columns, rows)
    by_worth = sorted(natural, key=lambda column: column.worth)
    chosen: dict[TopColumn[Row], int] = {}
    left = width + GAP
    for column in by_worth:
        if column.is_extra:
            continue
        least = min(column.least, natural[column])
        if chosen and least + GAP > left:
            break
        chosen[column] = min(least, width)
        left -= least + GAP
    lacks = {column: natural[column] - chosen[column] for column in by_worth if column in chosen}
    for column in sorted(lacks, key=lambda column: (column.is_bar, lacks[column])):
        more = max(0, min(left, lacks[column]))
        chosen[column] += more
        left -= more
    for column in by_worth:
        if column.is_extra and natural[column] + GAP <= left:
            chosen[column] = natural[column]
            left -= natural[column] + GAP
    return {column: chosen[column] for column in columns if column in chosen}


def _natural(columns: Sequence[TopColumn[Row]], rows: Iterable[Row]) -> Mapping[TopColumn[Row], int]:
    """The width of each column's widest text."""
    natural: dict[TopColumn[Row], int] = {}
    for row in islice(rows, MOST_MEASURED):
        for column in columns:
            cell = column.cell(row)
            if column.is_bar and cell.ratio is not None:
                natural[column] = column.most
            elif cell.text:
                natural[column] = max(natural.get(column, 0), width_of(cell.text))
    return {column: min(max(each, width_of(column.title)), column.most) for column, each in natural.items()}


def head(widths: Mapping[TopColumn[Row], int]) -> str:
    """The line of titles."""
    return (" " * GAP).join(pad(of.title[:width], width, right=of.right) for of, width in widths.items())


def line(widths: Mapping[TopColumn[Row], int], row: Row, glyphs: Glyphs) -> Line:
    """A row as spans, cut to the columns' widths."""
    spans: list[TextSpan] = []
    for column, width in widths.items():
        if spans:
            spans.append(TextSpan(" " * GAP))
        cell = column.cell(row)
        is_bar = cell.ratio is not None and not cell.text
        spans += _bar(cell, width, glyphs) if is_bar else _text(column, cell, width, glyphs)
    return spans


def _text(column: TopColumn[Row], cell: TextCell, width: int, glyphs: Glyphs) -> Line:
    text = cell.short if cell.short and width_of(cell.text) > width else cell.text
    text = cut(text, width, glyphs, keeps_end=column.keeps_end)
    padded = pad(text, width, right=column.right)
    if not cell.style or not text:
        return [TextSpan(padded)]
    spans = [TextSpan(text, cell.style), TextSpan(padded.replace(text, "", 1))]
    return spans[::-1] if column.right else spans


def _bar(cell: TextCell, width: int, glyphs: Glyphs) -> Line:
    text = bar(cell.ratio or 0.0, width, glyphs)
    return [TextSpan(text, cell.style), TextSpan(" " * (width - width_of(text)))]


class Painter:
    """Turns lines into text: plain text if `stream` is no terminal, without colours if the user wants none."""

    def __init__(self, stream: TextIO, *, no_color: bool) -> None:
        console = Console(file=stream, no_color=no_color or None)
        self._system = _COLORS.get(console.color_system or "")
        self._styles = {name: style.without_color if console.no_color else style for name, style in _STYLES.items()}

    def text(self, line: Line) -> str:
        """A line's text, without its end and without trailing spaces."""
        spans = [(span.text, self._styles.get(span.style)) for span in line]
        while spans and not spans[-1][0].strip() and not _is_seen(spans[-1][1]):
            spans.pop()
        if spans and not _is_seen(spans[-1][1]):
            spans[-1] = (spans[-1][0].rstrip(), spans[-1][1])
        if self._system is None:
            return "".join(text for text, _ in spans).rstrip()
        return "".join(style.render(text, color_system=self._system) if style else text for text, style in spans)

    def lines(self, lines: Sequence[Line]) -> str:
        """The text of lines, with their ends."""
        return "".join(f"{self.text(line)}\n" for line in lines)


def _is_seen(style: Style | None) -> bool:
    """Whether a space in this style is visible."""
    return style is not None and bool(style.reverse or style.bgcolor)
