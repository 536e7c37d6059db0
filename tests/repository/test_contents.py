"""docs/README.md: the way to every page."""

import re

from tests.support.places import ROOT

DOCS = ROOT / "docs"
CONTENTS = (ROOT / "README.md", DOCS / "README.md")


def test_every_page_is_in_the_table_of_contents() -> None:
    linked = {path.partition("#")[0] for path in re.findall(r"\]\(([^)]+)\)", (DOCS / "README.md").read_text())}
    assert {path.name for path in DOCS.glob("*.*") if path.name != "README.md"} <= linked


def test_the_readme_leads_to_the_table_of_contents() -> None:
    assert "](docs/README.md)" in (ROOT / "README.md").read_text()


def test_every_page_is_in_the_sites_navigation() -> None:
    """docs/generator/site.toml; `make docs` refuses a page that there is not."""
    pages = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *DOCS.rglob("*.md"))}
    assert set(re.findall(r'"((?:[\w/-]+/)?[\w-]+\.md)"', (DOCS / "generator" / "site.toml").read_text())) == pages


# issue 28, part 3
def test_the_tasks_are_the_same_in_readme_docs_and_site() -> None:
    tasks = [re.findall(r"^\| \*\*(.+?)\*\* \|", path.read_text(), re.MULTILINE) for path in CONTENTS]
    groups = re.findall(r'^    \{"(.+?)" = \[$', (DOCS / "generator" / "site.toml").read_text(), re.MULTILINE)
    assert len(groups) == 9
    assert tasks == [groups, groups]
