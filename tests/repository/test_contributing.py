"""CONTRIBUTING.md sends nobody to a place that there is not, and no recipe has more than four files."""

import re
from pathlib import Path

import pytest

from tests.support.places import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", TEXT, re.MULTILINE | re.DOTALL))
# A path in backticks has a folder in it; `<name>` in it is the reader's own, and a target makes what is in .cache.
PATHS = sorted({path for path in re.findall(r"`([^`\s]+)`", TEXT) if re.match(r"(?!\.cache/)[\w.]+/", path)})
LINKS = sorted(set(re.findall(r"\]\(([^)#]+)\)", TEXT)))


@pytest.mark.parametrize("path", [*PATHS, *LINKS])
def test_a_place_that_is_named_exists(path: str) -> None:
    place = Path(path)
    if "<" in place.name:
        place = place.parent
    assert (ROOT / place).exists()


def test_a_target_that_is_named_exists() -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z]+)\b[^\n]*(?:#|`)", TEXT)) <= set(targets)


# issue 8, Habits
def test_a_recipe_names_at_most_four_files() -> None:
    assert RECIPES.keys() == {
        "A source",
        "An output",
        "A field of a device",
        "A metric family",
        "A setting",
        "A command",
        "A field of a custom resource",
        "An account",
        "A trouble",
        "A finding of doctor",
        "An alert",
        "A vendor",
        "A new release of DCGM",
        "A DCGM field",
    }
    for text in RECIPES.values():
        assert 1 <= len(re.findall(r"^\d\. ", text, re.MULTILINE)) <= 4
