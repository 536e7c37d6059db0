"""The frame of the page, and what every section of it is made of. Whatever came from elsewhere is escaped here.

The page's own policy lets a browser run its one script and take its one style sheet, both from this exporter, and
nothing else: no script in the page's text, no other host, and nothing that would turn a string into HTML.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from pkgutil import get_data
from typing import Any
from unicodedata import category

from exporter import __version__
from exporter.model.snapshot import Health
from exporter.outputs.output import NOTHING, Answer, AnyLook, Output, answer

_FOLDER = "/static/"
_FOR_GOOD = ("Cache-Control", "max-age=31536000, immutable")
# without a version: the present one, which a browser must not keep
_FOR_NOW = ("Cache-Control", "no-cache")
TOOLS = """<div id="tools" hidden>
<label for="filter">Filter <input id="filter" type="search" autocomplete="off" spellcheck="false"
 placeholder="pod, namespace, workload, model …"></label>
<label for="show">Show <select id="show"><option value="all">all</option><option value="held">held</option>
<option value="idle">held but idle</option><option value="free">free</option>
<option value="failing">failing, not held</option>
<option value="outside">used around Kubernetes</option><option value="unknown">unknown</option></select></label>
<button id="pause" type="button">Pause updates</button>
<span id="updated"></span>
<span id="status" role="status"></span>
</div>"""
MORE = '<button id="more" type="button" hidden>Show more</button>'
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


@cache
def _content(name: str) -> tuple[bytes, str]:
    """The file, and its version."""
    content = get_data(__package__, name) or b""
    return content, sha256(content).hexdigest()[:12]


def address(output: Output[Any]) -> str:
    """Where the page finds a file: relative to the page, which a proxy may have moved."""
    name = output.path.removeprefix(_FOLDER)
    return f"{output.path.removeprefix('/')}?v={_content(name)[1]}"


def _output(name: str, content_type: str) -> Output[Any]:
    def make(look: AnyLook) -> Answer:
        content, version = _content(name)
        cached = _FOR_GOOD if ("v", version) in look.question.query else _FOR_NOW
        return Answer(content_type, (content,), len(content), headers=(cached,))

    return Output(path=_FOLDER + name, says="", make=make, needs=NOTHING)


STYLE = _output("page.css", "text/css; charset=utf-8")
SCRIPT = _output("page.js", "text/javascript; charset=utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageColumn:
    """A column of a table: its title, and whether its cells are the headers of their rows."""

    title: str
    is_header: bool = False


def text(value: object) -> str:
    """A text from elsewhere, as HTML; its direction changes nothing around it."""
    return f"<bdi>{escape(visible(str(value)))}</bdi>" if value else ""


def visible(value: str) -> str:
    r"""A text from elsewhere, with invisible characters (control, direction) by their number: \u{202e}."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(rf"\u{{{ord(char):x}}}" if _is_unseen(char) else char for char in value)


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


def table(name: str, caption: str, columns: Sequence[PageColumn], rows: Rows) -> str:
    """A table with the id `name`. The cells of its rows are HTML."""
    head = "".join(f'<th scope="col" role="columnheader">{column.title}</th>' for column in columns)
    body = "\n".join(f'<tr role="row">{_cells(columns, row)}</tr>' for row in rows)
    # a narrow screen shows rows as blocks; without roles some browsers would not treat those as rows
    return (
        f'<table id="{name}" role="table"><caption>{caption}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">{body}</tbody></table>'
    )


def _cells(columns: Sequence[PageColumn], row: Sequence[str]) -> str:
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
    rows = ((text(name), state(up=each.up), text(each.message), text(each.remedy)) for name, each in health.items())
    columns = (PageColumn(title="Source", is_header=True), *map(_column, ("State", "What is wrong", "What to do")))
    opened = " open" if any(each.trouble for each in health.values()) else ""
    return (
        f'<details id="sources"{opened}><summary><h2>Sources</h2>'
        f' <span id="sources-up">{up} of {len(health)} up</span></summary>\n'
        + table("sources-table", "What this exporter reads, and how the last attempt went", columns, rows)
        + "</details>"
    )


def alert(message: str) -> str:
    """What is wrong with the whole page; the script writes here, too."""
    return f'<p id="trouble" class="alert"{"" if message else " hidden"}>{text(message)}</p>'


def _endpoints(outputs: Iterable[Output[Any]]) -> str:
    items = "\n".join(
        # relative, since `kubectl proxy` and others put a path before them
        f'<dt><a href="{output.path.removeprefix("/")}">{output.path}</a></dt><dd>{escape(output.says)}</dd>'
        for output in outputs
        if output.says
    )
    return f'<section aria-labelledby="endpoints"><h2 id="endpoints">Endpoints</h2>\n<dl>\n{items}\n</dl></section>'


def _column(title: str) -> PageColumn:
    return PageColumn(title=title)
