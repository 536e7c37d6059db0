"""docs/alerts.md has an entry for each alert, and each says the same as the rule."""

import re

import pytest

from tests.rules.shipped import alerts
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "alerts.md").read_text()
ENTRIES = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=\n##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
README = (ROOT / "README.md").read_text()
SCRAPE = (ROOT / "docs" / "scrape.md").read_text()


def test_every_alert_has_an_entry_and_every_entry_an_alert() -> None:
    assert set(ENTRIES) == alerts().keys()
    assert f"has {len(ENTRIES)} alerts" in PAGE


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_an_alert_means_where_to_look_and_what_to_do(name: str) -> None:
    meaning, *points = re.split(r"\n\n?- ", ENTRIES[name].strip())
    assert meaning.startswith(alerts()[name]["labels"]["severity"].capitalize())
    assert [re.match(r"\*\*([A-Z][a-z ]+)\*\*: ", point)[1] for point in points] == ["Look at", "Do", "Silence"]  # type: ignore[index]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_labels_that_a_silence_needs_are_the_alerts(name: str) -> None:
    rule = alerts()[name]
    silence = ENTRIES[name].partition("**Silence**")[2]
    kept = re.search(r"by \(([^)]*)\) \(", rule["expr"])
    if kept and not rule["expr"].startswith("absent"):
        given = set(re.findall(r'"(\w+)", "\w+", "", ""', rule["expr"]))
        assert set(re.findall(r"`(\w+)`", silence)) <= set(re.split(r", ", kept[1])) | given | {"instance", "node"}


# issue 30, alerts that deserve a page
def test_the_table_names_the_alerts_that_wake_somebody() -> None:
    for severity in ("critical", "warning"):
        names = {name for name, rule in alerts().items() if rule["labels"]["severity"] == severity}
        (row,) = re.findall(rf"^\| `{severity}`.*", PAGE, re.MULTILINE)
        assert set(re.findall(r"\w+", row)) & alerts().keys() == names
    wake = sum(rule["labels"]["severity"] != "info" for rule in alerts().values())
    assert f"{wake} of\nthem wake somebody" in PAGE
    assert f"{wake} alerts that wake somebody, {len(alerts()) - wake} that do not" in README
    assert f"{len(alerts())} alerts, of which {wake} wake somebody" in " ".join(SCRAPE.split())
