"""The alert of a reader's own in docs/alerts.md: its rule and its test, by promtool."""

import re
from pathlib import Path

import pytest

from tests.rules.shipped import run
from tests.support.places import ROOT

pytestmark = pytest.mark.real

PAGE = (ROOT / "docs" / "alerts.md").read_text()
FILES = ("own.yaml", "own.test.yaml")


def written(folder: Path) -> None:
    """Write the page's two files, as a reader does."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for name, text in zip(FILES, blocks, strict=True):
        (folder / name).write_text(text)


# issue 28, "Must show" 2
def test_the_rule_of_the_page_passes_the_test_of_the_page(promtool: Path, tmp_path: Path) -> None:
    assert f"promtool check rules {FILES[0]} && promtool test rules {FILES[1]}\n" in PAGE
    written(tmp_path)
    run(promtool, "check", "rules", tmp_path / FILES[0])
    run(promtool, "test", "rules", tmp_path / FILES[1])


# issue 28, "Must show" 2
def test_its_test_notices_another_namespace_and_a_shorter_time(promtool: Path, tmp_path: Path) -> None:
    for right, wrong in (('namespace="batch"}) <', 'namespace="ml"}) <'), ("2 * 3600", "600")):
        written(tmp_path)
        rule = tmp_path / FILES[0]
        assert right in rule.read_text()
        rule.write_text(rule.read_text().replace(right, wrong))
        with pytest.raises(AssertionError):
            run(promtool, "test", "rules", tmp_path / FILES[1])
