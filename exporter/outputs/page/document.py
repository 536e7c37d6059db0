"""The frame of the page, and the parts that its sections share. Texts from elsewhere are escaped here.

The page's own policy lets a browser run one script and use one style sheet, both from this exporter. It forbids
everything else: scripts in the page's text, other hosts, and anything that turns a string into HTML.

Tests: tests/outputs/test_page.py.
"""

from collections.abc import Iterable, Mapping, Sequence
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
_PARTS = {"page.js": ("history.js", "morph.js", "page.js")}  # one request and one version for all three
_FOR_GOOD = ("Cache-Control", "max-age=31536000, immutable")
# an address without a version means the present version, which a browser must not keep
_FOR_NOW = ("Cache-Control", "no-cache")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none';"
    " form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
# without an icon, a browser would ask for /favicon.ico
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' height='16'"
    " rx='3' fill='%23256b45'/%3E%3Cpath d='M4 12V8m4 4V4m4 8V6' stroke='%23fff' stroke-width='2'/%3E%3C/svg%3E"
)
_WORDS = {True: "up", False: "down", None: "not asked yet"}
_UNSEEN = ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
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
{main}
"""
_FOOT = """
</main>
<footer><p>pod-gpu-metrics-exporter {version}</p></footer>
</body></html>
"""


@cache
def _content(name: str) -> tuple[bytes, str]:
    """The content of a file of the page, and its version."""
    content = b"\n".join(get_data(__package__, part) or b"" for part in _PARTS.get(name, (name,)))
    return content, sha256(content).hexdigest()[:12]


def address(output: Output[Any]) -> str:
    """The address of a file on the page. It is relative to the page, since a proxy may put a path before both."""
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


def text(value: object) -> str:
    """A text from elsewhere as HTML. Its writing direction changes nothing around it."""
    return f"<bdi>{escape(visible(str(value)))}</bdi>" if value else ""


def plain(value: str) -> str:
    """A text from elsewhere, as HTML's attributes and titles take it."""
    return escape(visible(value))


def link(address: str, content: str) -> str:
    """A link to an address, which is escaped here, with this HTML as its content."""
    return f'<a href="{escape(address)}">{content}</a>'


def visible(value: str) -> str:
    r"""A text from elsewhere, with invisible characters (control, direction) written as their number: \u{202e}."""
    if value.isascii() and value.isprintable():
        return value
    return "".join(rf"\u{{{ord(char):x}}}" if category(char) in _UNSEEN else char for char in value)


def document(
    title: str, about: str, sections: Iterable[str], outputs: Iterable[Output[Any]], *, is_stale: bool = False
) -> Answer:
    """The page: its heading, a line about it, sections (HTML), and links to the outputs.

    `is_stale`: the sections lack facts that could not be read now. page.js then keeps the sections that it has.
    """
    head = _HEAD.format(
        title=plain(title),
        heading=text(title),
        about=plain(about),
        icon=escape(_ICON),
        style=address(STYLE),
        script=address(SCRIPT),
        main='<main data-stale="">' if is_stale else "<main>",
    )
    foot = _endpoints(outputs) + _FOOT.format(version=escape(__version__))
    body = (f"{section}\n".encode() for section in sections)
    made = answer("text/html; charset=utf-8", head.encode(), *body, foot.encode())
    return made._replace(headers=(("Content-Security-Policy", POLICY),))


def table(name: str, caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with the id `name`. Cells are HTML, and the first cell of a row is its header."""
    head = "".join(f'<th scope="col" role="columnheader">{title}</th>' for title in titles)
    body = "\n".join(f'<tr role="row">{_cells(titles, *row)}</tr>' for row in rows)
    # a narrow screen shows rows as blocks; without roles some browsers would not treat these blocks as rows
    return (
        f'<table id="{name}" role="table"><caption>{caption}</caption>\n'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n<tbody role="rowgroup">{body}</tbody></table>'
    )


def _cells(titles: Sequence[str], header: str, *cells: str) -> str:
    rest = zip(titles[1:], cells, strict=True)
    tags = (f'<td role="cell" data-label="{title}">{cell}</td>' for title, cell in rest)
    return f'<th scope="row" role="rowheader">{header}</th>{"".join(tags)}'


def sources(health: Mapping[str, Health]) -> str:
    """The sources and whether they answer, on one line."""
    items = "".join(_source(name, _WORDS[of_source.up]) for name, of_source in health.items())
    return f'<div id="sources"><h2>Sources</h2><ul>{items}</ul></div>'


def _source(name: str, words: str) -> str:
    state = words.partition(" ")[0]
    return f'<li class="state {state}" title="{words}">{text(name)} <span class="seen">{words}</span></li>'


def alert(message: str, health: Mapping[str, Health]) -> str:
    """The list of troubles, each with its remedy: `message` about the whole page, and the trouble of each source.

    No other section of the page repeats them.
    """
    messages = [message] if message else []
    messages += (f"{name}: {of_source.trouble}" for name, of_source in health.items() if of_source.trouble)
    items = "".join(f"<li>{text(message)}</li>" for message in messages)
    return f'<ul id="trouble" class="alert"{"" if items else " hidden"}>{items}</ul>'


def _endpoints(outputs: Iterable[Output[Any]]) -> str:
    items = "\n".join(
        # relative, since `kubectl proxy` and other proxies put a path before it
        f'<dt><a href="{output.path.removeprefix("/")}">{output.path}</a></dt><dd>{escape(output.says)}</dd>'
        for output in outputs
        if output.says
    )
    return f'<section aria-labelledby="endpoints"><h2 id="endpoints">Endpoints</h2>\n<dl>\n{items}\n</dl></section>'
