"""Every link of README.md, docs/ and the other pages: files, anchors and pictures are there. No network is asked."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.places import ROOT

PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    ROOT / "deploy" / "helm" / "pod-gpu-metrics-exporter" / "README.md",
]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
ABSOLUTE = re.compile(r"https://[a-z0-9.-]+\.[a-z]+(/[\w./~#?=&%+-]*)?")


def without_code(text: str) -> str:
    """Blocks and pieces of code are no Markdown."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "`", text)


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors of a page's headings, as GitHub makes them; one that comes again has -1 or more behind it."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    made: dict[str, int] = {}
    all_of_page = set()
    for heading in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
        all_of_page.add(f"{slug}-{made[slug]}" if slug in made else slug)
        made[slug] = made.get(slug, 0) + 1
    return frozenset(all_of_page)


def relative(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    for mark, text, link in LINK.findall(without_code(page.read_text())):
        assert text, f"a link or a picture without words: {link}"
        if ":" in link:
            assert ABSOLUTE.fullmatch(link), link
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert ROOT in target.parents, link
        if mark:
            assert target.suffix in {".png", ".svg"}, link
        if anchor:
            assert target.suffix == ".md", link
            assert anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_no_bracket_of_a_page_is_a_link_that_is_broken_in_two(page: Path) -> None:
    """What neither GitHub nor the site takes for a link: a space before the address, an address over two lines."""
    assert not re.search(r"\]\s+\((?:https?:|\.\.?/|[\w/-]+\.md)", without_code(page.read_text()))
    assert not re.search(r"\]\([^)\s]*\s", without_code(page.read_text()))
