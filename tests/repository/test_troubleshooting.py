"""docs/troubleshooting.md quotes what the program says; and the links of all pages lead somewhere."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from exporter.ownership.explain import HIDES_OWNERS
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
_TEXT = PAGE.read_text()
# a quotation: lines that begin with >, in one paragraph; or the first cell of a row of a table of what "it says"
QUOTATIONS = [
    *(
        " ".join(line.removeprefix("> ") for line in block.splitlines())
        for block in re.findall(r"(?:^> .*\n)+", _TEXT, re.MULTILINE)
    ),
    *(
        row.split(" | ")[0].removeprefix("| ")
        for table in re.findall(r"^\| it says \|.*\n\|[-|]+\n((?:\|.*\n)+)", _TEXT, re.MULTILINE)
        for row in table.splitlines()
    ),
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])
# a reader of Markdown sees no link in code
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


# issue 12, Docs
@pytest.mark.parametrize("quotation", QUOTATIONS)
def test_the_program_says_what_is_quoted(quotation: str) -> None:
    """Word for word in one text of the program; … stands for what is filled in, and " …" for the rest of the text."""
    words = quotation.removesuffix(" …")
    assert any(words in text for text in texts_of_the_program()), quotation


@pytest.mark.parametrize("reason", sorted({*HIDES_OWNERS.values()}))
def test_each_reason_why_a_holder_is_unknown_leads_further(reason: str) -> None:
    """The page, `top` and JSON show the reason alone, without a remedy."""
    (section,) = re.findall(r"^## The holder of a GPU is unknown$(.*?)^## ", _TEXT, re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", section, re.MULTILINE)
    (link,) = [
        link for cell, link in rows if any(reason.startswith(one.removesuffix(" …")) for one in cell.split("; "))
    ]
    assert re.search(r"\]\([\w.]*#[\w-]+\)$", link), link


def test_enough_is_quoted() -> None:
    assert len(QUOTATIONS) == len(set(QUOTATIONS)) > 30


@cache
def texts_of_the_program() -> frozenset[str]:
    """Every text in its code but docstrings, with … for what is filled in, and in the JSON beside the code."""
    in_code = (
        text
        for path in (ROOT / "exporter").rglob("*.py")
        if not {"_gen", "simulator"} & set(path.parts)
        for text in texts_in(ast.parse(path.read_text()))
    )
    in_json = (text for path in (ROOT / "exporter").rglob("*.json") for text in leaves(json.loads(path.read_text())))
    return frozenset((*in_code, *in_json))


def leaves(content: object) -> Iterator[str]:
    """The texts in a document of JSON."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for inner in content.values() if isinstance(content, dict) else content:
            yield from leaves(inner)


def texts_in(tree: ast.AST) -> Iterator[str]:
    nodes = [tree]
    for node in nodes:  # it grows meanwhile
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("``", page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        place = (page.parent / path).resolve() if path else page
        assert place.exists(), link
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place), link


@cache
def anchors(page: Path) -> frozenset[str]:
    """As GitHub makes them of headings: lower case, without marks, with hyphens for spaces."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    found = set(re.findall(r'<a (?:id|name)="([^"]+)"', text))
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\]\([^)]*\)", "]", heading)
        found.add(re.sub(r"[^\w\- ]", "", shown.lower()).strip().replace(" ", "-"))
    return frozenset(found)
