"""The frame of the page, and what every section of it is made of. Whatever came from elsewhere is escaped here.

The page's own policy lets a browser run its one script and take its one style sheet, both from this exporter, and
nothing else: no script in the page's text, no other host, and nothing that would turn a string into HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from unicodedata import category

from exporter import __version__
from exporter.model.snapshot import Health
from exporter.outputs.output import Answer, Output, answer
from exporter.outputs.page.files import SCRIPT, STYLE, address

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# without one, a browser would ask for /favicon.ico
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16'"
    " rx='3' fill='%23256b45'/%3E%3Cpath d='M4 12V8m4 4V4m4 8V6' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
)
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="{icon}">
<link rel="stylesheet" href="{style}">
<script src="{script}" defer></script>
</head><body>
<header>
<h1>{heading}</h1>
<p id="about">{about}</p>
</header>
<main{data}>
"""
_FOOT = """
</main>
<footer><p>pod-gpu-metrics-exporter {version}</p></footer>
</body></html>
"""
Rows = Iterable[Sequence[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table: its title, and whether its cells are the headers of their rows."""

    title: str
    is_header: bool = False


def text(said: object) -> str:
    """What somebody said, as HTML: a text of its own, whose direction changes nothing around it."""
    return f"<bdi>{escape(visible(str(said)))}</bdi>" if said else ""


def visible(said: str) -> str:
    r"""What somebody said, with what cannot be seen (a control, a mark of direction) by its number: \u{202e}."""
    if said.isascii() and said.isprintable():
        return said
    return "".join(rf"\u{{{ord(char):x}}}" if _is_unseen(char) else char for char in said)


def _is_unseen(char: str) -> bool:
    return category(char) in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")


def document(
    title: str, about: str, sections: Iterable[str], data: Mapping[str, str], outputs: Iterable[Output[Any]]
) -> Answer:
    """The page: its heading, a line about it, sections (HTML), and links to the outputs. `data` is for the script."""
    head = _HEAD.format(
        title=escape(visible(title)),
        heading=text(title),
        about=escape(visible(about)),
        icon=escape(_ICON),
        style=address(STYLE),
        script=address(SCRIPT),
        data="".join(f' data-{name}="{escape(value)}"' for name, value in data.items()),
    )
    foot = _endpoints(outputs) + _FOOT.format(version=escape(__version__))
    made = answer(
        "text/html; charset=utf-8", head.encode(), *(f"{each}\n".encode() for each in sections), foot.encode()
    )
    return made._replace(headers=(("Content-Security-Policy", POLICY),))


def table(name: str, caption: str, columns: Sequence[Column], rows: Rows) -> str:
    """A table with the id `name`. The cells of its rows are HTML."""
    head = "".join(f'<th scope="col" role="columnheader">{column.title}</th>' for column in columns)
    body = "\n".join(f'<tr role="row">{_cells(columns, row)}</tr>' for row in rows)
    # the roles are said because a narrow screen shows rows as blocks, which are no rows to some browsers
    return (
        f'<table id="{name}" role="table"><caption>{caption}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">{body}</tbody></table>'
    )


def _cells(columns: Sequence[Column], row: Sequence[str]) -> str:
    return "".join(
        f'<th scope="row" role="rowheader">{cell}</th>'
        if column.is_header
        else f'<td role="cell" data-label="{column.title}">{cell}</td>'
        for column, cell in zip(columns, row, strict=True)
    )


def state(*, up: bool | None) -> str:
    """Up or down, as a cell. What has not been asked yet is neither."""
    word = {True: "up", False: "down", None: "not asked yet"}[up]
    return f'<span class="state {word.partition(" ")[0]}">{word}</span>'


def sources(health: Mapping[str, Health]) -> str:
    """The sources: open where one is in trouble."""
    up = sum(each.up is True for each in health.values())
    rows = (
        (
            text(name),
            state(up=each.up),
            text(each.message),
            text(each.remedy),
        )
        for name, each in health.items()
    )
    columns = (Column(title="Source", is_header=True), *map(_column, ("State", "What is wrong", "What to do")))
    opened = " open" if any(each.trouble for each in health.values()) else ""
    return (
        f'<details id="sources"{opened}><summary><h2>Sources</h2>'
        f' <span id="sources-up">{up} of {len(health)} up</span></summary>\n'
        + table("sources-table", "What this exporter reads, and how the last attempt went", columns, rows)
        + "</details>"
    )


def alert(said: str) -> str:
    """What is wrong with the whole page; the script writes here, too."""
    return f'<p id="trouble" class="alert"{"" if said else " hidden"}>{text(said)}</p>'


def _endpoints(outputs: Iterable[Output[Any]]) -> str:
    items = "\n".join(
        # relative, since `kubectl proxy` and others put a path before them
        f'<dt><a href="{output.path.removeprefix("/")}">{output.path}</a></dt><dd>{escape(output.says)}</dd>'
        for output in outputs
        if output.says
    )
    return f'<section aria-labelledby="endpoints"><h2 id="endpoints">Endpoints</h2>\n<dl>\n{items}\n</dl></section>'


def _column(title: str) -> Column:
    return Column(title=title)
