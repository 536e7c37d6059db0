"""docs/alerts.md has an entry for each alert, and each says the same as the rule."""

import re

import pytest

from tests.rules.shipped import alerts, records
from tests.support.places import ROOT

PAGE = (ROOT / "docs" / "alerts.md").read_text()
ENTRIES = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=\n##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
HARDWARE, APPLICATION, OTHER = "GpuXidCritical", "GpuXidApplication", "GpuXidWarning"


def test_every_alert_has_an_entry_and_every_entry_an_alert() -> None:
    assert set(ENTRIES) == alerts().keys()
    assert f"has {len(ENTRIES)} alerts" in PAGE


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_says_what_it_means_what_to_look_at_what_to_do_and_how_to_silence_it(name: str) -> None:
    meaning, *points = re.split(r"\n\n?- ", ENTRIES[name].strip())
    assert meaning.startswith(alerts()[name]["labels"]["severity"].capitalize())
    assert [re.match(r"\*\*([A-Z][a-z ]+)\*\*: ", point)[1] for point in points] == ["Look at", "Do", "Silence"]  # type: ignore[index]


@pytest.mark.parametrize("name", ENTRIES)
def test_the_labels_that_a_silence_needs_are_the_alerts(name: str) -> None:
    rule = alerts()[name]
    silence = ENTRIES[name].partition("**Silence**")[2]
    kept = re.search(r"by \(([^)]*)\) \(", rule["expr"])
    if kept and not rule["expr"].startswith("absent"):
        assert set(re.findall(r"`(\w+)`", silence)) <= set(re.split(r", ", kept[1])) | {"instance", "node"}


def class_of(xid: int) -> str:
    """The alert whose class an XID is of, by the record's regular expressions."""
    classes = dict(
        re.findall(r'"class", "(hardware|application)", "xid", "([^"]*)"', records()["xid:pod_gpu_xid_errors:new15m"])
    )
    found = [name for name, xids in classes.items() if re.fullmatch(xids, str(xid))]
    assert len(found) <= 1
    return {"hardware": HARDWARE, "application": APPLICATION}[found[0]] if found else OTHER


def listed() -> dict[int, str]:
    """The XIDs of the table, and the alert of each."""
    found = {}
    for cells, name in re.findall(r"^\| ([^|]*[0-9][^|]*) \|[^|]*\| (GpuXid\w+) \|$", PAGE, re.MULTILINE):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", cells):
            for xid in range(int(first), int(last or first) + 1):
                assert xid not in found
                found[xid] = name
    return found


def test_the_table_of_xids_is_what_the_rules_do() -> None:
    table = listed()
    assert len(table) > 100
    for xid in range(1, 400):
        assert class_of(xid) == table.get(xid, OTHER), xid
