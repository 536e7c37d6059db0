"""The table of DCGM's fields, held against what was seen of them, and against itself."""

import csv
from collections import Counter
from textwrap import indent

import pytest

from exporter.dcgm.dictionary import dictionary
from exporter.dcgm.fields import FIELDS, METRICS, counters_csv
from exporter.dcgm.table import TABLE, DcgmField
from release.dictionary import known_names
from tests.support.golden import Golden
from tests.support.places import DATA, ROOT

ROWS = {row.name: row for row in TABLE}
with (DATA / "dcgm-fields.csv").open(encoding="utf-8") as file:
    SEEN = list(csv.DictReader(file))


def as_seen(row: DcgmField) -> dict[str, str]:
    return {
        "json": row.json[0] if row.json else "",
        "name": row.name,
        "unit": row.unit.symbol,
        "newer": row.newer[0] if row.newer else row.name,
        "newer_unit": row.newer_unit.symbol,
        "additive": row.additive.value if row.additive else "",
    }


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen["name"])
def test_a_row_says_what_was_seen(seen: dict[str, str]) -> None:
    assert as_seen(ROWS[seen["name"]]) == seen


def test_the_json_fields_are_those_that_were_seen_in_this_order() -> None:
    """Those of the contract come first; whoever reads JSON by position finds them where they were."""
    contract = [seen["json"] for seen in SEEN if seen["json"]]
    assert [*METRICS] == [*contract, "fan_speed"]


def test_no_row_and_no_name_is_there_twice() -> None:
    assert [name for name, times in Counter(row.name for row in TABLE).items() if times > 1] == []
    named = [name for row in TABLE for name in (row.family, row.oldest, row.newer_family, *row.also) if name]
    unchanged = sum(row.newer is None for row in TABLE)
    assert len(named) - unchanged == len(set(named))
    assert set(named) <= FIELDS.keys()


def test_a_value_in_the_newer_unit_is_the_same_amount() -> None:
    # one of DCGM 4.9's unit in that of the JSON field
    expected = {"DEV_GPU_UTIL_RATIO": 100, "DEV_FB_USED_BYTES": 2**-20, "DEV_SM_CLOCK_HERTZ": 1e-6}
    for name, amount in {**expected, "DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL": 1e9, "DEV_GPU_TEMP_CELSIUS": 1}.items():
        field = FIELDS[f"DCGM_FI_{name}"]
        assert field.times / field.per == amount, name


def test_the_counters_file_has_each_row_that_is_in_it_once() -> None:
    lines = [line for line in counters_csv(None).splitlines() if not line.startswith("#")]
    assert lines == [f"{row.family}, {row.kind}, {row.help}" for row in TABLE if row.is_in_file]


BOOK = dictionary()
NAMES = DATA / "dcgm" / "go-dcgm-names.tsv"
# the files of deploy/, and the go-dcgm of the oldest and newest dcgm-exporter that each is for
COUNTERS = {
    "counters/before-4.4.csv": ("3.3", ("3.3.9", "4.0.0", "4.1.0", "4.2.0", "4.3.0")),
    "counters/before-4.8.3.csv": ("4.4", ("4.0.0", "4.1.0", "4.2.0", "4.3.0", "4.4.0", "4.4.2", "4.5.0", "4.5.3")),
    "kustomize/sidecar/counters.csv": ("4.8.3", ("4.6.0", "4.6.1")),
}


def known_to(go_dcgm: str) -> set[str]:
    return known_names(NAMES.read_text())[go_dcgm]


# issue 22, line 35
@pytest.mark.parametrize("path", COUNTERS)
def test_a_counters_file_has_no_name_that_ends_its_dcgm_exporter(path: str, golden: Golden) -> None:
    exporter, versions = COUNTERS[path]
    made = counters_csv(None, exporter)
    golden.holds(ROOT / "deploy" / path, made)
    names = {line.partition(",")[0] for line in made.splitlines() if not line.startswith("#")}
    own = {name for name in names if name.startswith("DCGM_EXP_")}
    # dcgm-exporter counts these itself, since 4.8.3
    assert own == ({"DCGM_EXP_CLOCK_EVENTS_TOTAL", "DCGM_EXP_XID_ERRORS_TOTAL"} if exporter == "4.8.3" else set())
    for version in versions:
        assert names - own - known_to(version) == set(), version
    # DCGM's own headers, to 4.7.0 (dcgm-exporter 4.9), of which only what it adds and takes away is known
    newest = BOOK.generations[-1] if exporter == "4.8.3" else versions[-1]
    for generation in (version for version in BOOK.generations if versions[0] <= version <= newest):
        assert {name.removeprefix("DCGM_FI_") for name in names - own} - BOOK.all_names(generation).keys() == set()


def test_the_daemon_set_has_the_newest_counters_file(golden: Golden) -> None:
    path = ROOT / "daemonset.yaml"
    before, begin, rest = path.read_text().partition("  counters.csv: |\n")
    _, end, after = rest.partition("---\n")
    golden.holds(path, before + begin + indent(counters_csv(None, "4.8.3"), " " * 4) + end + after)


# issue 22, line 34
def test_the_table_has_no_name_that_no_go_dcgm_knows() -> None:
    every = set.union(*(known_to(version) for version in ("3.3.9", "4.4.0", "4.5.0", "4.6.0", "4.6.1")))
    for row in TABLE:
        if row.kind != "label" and not row.name.startswith("EXP_"):
            assert row.family in every, row.name
        if row.name.startswith("DEV_NVLINK_") and row.kind == "counter":
            assert row.newer_family in every, row.name
