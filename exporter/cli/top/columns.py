"""The columns of a table, and which of them a width has room for.

A narrow terminal drops the columns that are worth least, one after the other. What room is left over goes to the texts
that lack least of theirs, so that one very long name costs only itself, and then to the bars.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from exporter.cli.top.words import Glyphs, bar, cut, pad, width_of

GAP = 1
MOST_MEASURED = 2000  # rows whose texts decide on widths: of more, one may be cut
Row = TypeVar("Row")


class Cell(NamedTuple):
    """What stands in a column of a row: a text with its style, and where it is a bar, how full it is (0 to 1)."""

    text: str = ""
    style: str = ""
    ratio: float | None = None


EMPTY = Cell()


class Span(NamedTuple):
    """A part of a line: a text and the name of its style, "" for none."""

    text: str
    style: str = ""


Line = Sequence[Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column(Generic[Row]):
    """A column. It takes at least `least` cells, or what its widest text takes where that is less, and at most `most`.

    `worth` says in which order columns are chosen: 0 first. An extra one has to wait until all others have all the room
    that they like. Of a text that is too long, its last `keeps_end` characters
    stay: those of a pod's name tell it from its siblings.
    """

    name: str
    title: str
    worth: int
    cell: Callable[[Row], Cell]
    least: int = 99
    most: int = 99
    right: bool = False
    is_bar: bool = False
    is_extra: bool = False
    keeps_end: int = 0


def fit(columns: Sequence[Column[Row]], rows: Iterable[Row], width: int) -> Mapping[str, int]:
    """The width of each chosen column by name. One that would be empty in every row is not chosen."""
    natural = _natural(columns, rows)
    by_worth = sorted((column for column in columns if column.name in natural), key=lambda column: column.worth)
    chosen: dict[str, int] = {}
    left = width + GAP
    for column in by_worth:
        if column.is_extra:
            continue
        least = min(column.least, natural[column.name])
        if chosen and least + GAP > left:
            break
        chosen[column.name] = min(least, width)
        left -= least + GAP
    lacks = {column: natural[column.name] - chosen[column.name] for column in by_worth if column.name in chosen}
    for column in sorted(lacks, key=lambda column: (column.is_bar, lacks[column])):
        more = max(0, min(left, lacks[column]))
        chosen[column.name] += more
        left -= more
    for column in by_worth:
        if column.is_extra and natural[column.name] + GAP <= left:
            chosen[column.name] = natural[column.name]
            left -= natural[column.name] + GAP
    return chosen


def _natural(columns: Sequence[Column[Row]], rows: Iterable[Row]) -> dict[str, int]:
    """The widths that the columns would like to have."""
    natural: dict[str, int] = {}
    for row in islice(rows, MOST_MEASURED):
        for column in columns:
            cell = column.cell(row)
            if column.is_bar and cell.ratio is not None:
                natural[column.name] = column.most
            elif cell.text:
                natural[column.name] = max(natural.get(column.name, 0), width_of(cell.text))
    titles = {column.name: width_of(column.title) for column in columns}
    mosts = {column.name: column.most for column in columns}
    return {name: min(max(each, titles[name]), mosts[name]) for name, each in natural.items()}


def head(columns: Sequence[Column[Row]], widths: Mapping[str, int]) -> str:
    """The line of titles."""
    titles = (
        pad(column.title[: widths[column.name]], widths[column.name], right=column.right)
        for column in columns
        if column.name in widths
    )
    return (" " * GAP).join(titles)


def line(columns: Sequence[Column[Row]], widths: Mapping[str, int], row: Row, glyphs: Glyphs) -> Line:
    """A row as spans, cut to the columns' widths."""
    spans: list[Span] = []
    for column in columns:
        width = widths.get(column.name)
        if width is None:
            continue
        if spans:
            spans.append(Span(" " * GAP))
        cell = column.cell(row)
        spans += (
            _bar(cell, width, glyphs)
            if cell.ratio is not None and not cell.text
            else _text(column, cell, width, glyphs)
        )
    return spans


def _text(column: Column[Row], cell: Cell, width: int, glyphs: Glyphs) -> Line:
    text = cut(cell.text, width, glyphs, keeps_end=column.keeps_end)
    padded = pad(text, width, right=column.right)
    if not cell.style or not text:
        return [Span(padded)]
    space = padded.replace(text, "", 1)
    return [Span(space), Span(text, cell.style)] if column.right else [Span(text, cell.style), Span(space)]


def _bar(cell: Cell, width: int, glyphs: Glyphs) -> Line:
    text = bar(cell.ratio or 0.0, width, glyphs)
    return [Span(text, cell.style), Span(" " * (width - width_of(text)))]
