"""What the benchmarks make of their figures."""

import re

import pytest

from benchmarks.compare import compare
from benchmarks.profile import PARTS, listing, part_of
from benchmarks.table import Aim, Row, at_least, at_most, misses, show
from tests.support.places import ROOT

PERFORMANCE = (ROOT / "docs" / "developers" / "performance.md").read_text()
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "MB": 1e6, "MiB": 2**20, "times": 1.0}


def test_a_run_beside_an_earlier_one() -> None:
    before: list[dict[str, object]] = [{"what": "join", "figure": "50 us", "aim": None, "number": 50e-6}]
    now: list[dict[str, object]] = [
        {"what": "join", "figure": "40 us", "aim": None, "number": 40e-6},
        {"what": "start", "figure": "0.3 s", "aim": None, "number": 0.3},
    ]
    assert compare(before, now).splitlines() == [" 0.80  join: 40 us (before: 50 us)", "  new  start: 0.3 s"]


def test_the_table_has_aim_and_figure_side_by_side() -> None:
    rows = [Row("join", "200 times", at_least(150, "times"), 200.0), Row("start", "0.3 s", None, 0.3)]
    assert show(rows).splitlines() == [
        "what   figure     aim",
        "-----  ---------  ------------------",
        "join   200 times  at least 150 times",
        "start  0.3 s",
    ]


def test_rows_that_miss_their_aim_are_named() -> None:
    met = [
        Row("join", "150 times", at_least(150, "times"), 150.0),
        Row("scrape", "0.50 ms", at_most(0.5, "ms", 1e-3), 0.5e-3),
        Row("growth", "+0.05 MiB", Aim("none", 0.1), 0.05),
        Row("start", "0.3 s", None, 0.3),
    ]
    assert misses(met) == "All 3 rows with an aim reach it."
    missed = [
        Row("slow", "149 times", at_least(150, "times"), 149.0),
        Row("gzip", "0.51 ms", at_most(0.5, "ms", 1e-3), 0.51e-3),
    ]
    assert misses([*met, *missed]).splitlines() == [
        "2 of 5 rows with an aim miss it:",
        "  slow: 149 times; the aim is at least 150 times",
        "  gzip: 0.51 ms; the aim is at most 0.5 ms",
    ]


def test_a_stack_is_counted_for_its_innermost_part() -> None:
    outer = "run (asyncio/runners.py:118);Guard.answer (exporter/web/guard.py:92);Node.look (exporter/node/node.py:120)"
    assert part_of(outer) == "the node: waiting for sources, the snapshot"
    assert part_of(f"{outer};Cuts.fill (exporter/exposition/cuts.py:69)") == "the join"
    assert part_of(f"{outer};wait (asyncio/tasks.py:418)") == "the event loop and its sockets"
    assert part_of("main (elsewhere.py:1)") == "other"


def test_the_listing_adds_up_to_a_scrape() -> None:
    waiting = "run (asyncio/runners.py:118);EpollSelector.select (selectors.py:468)"
    stacks = [
        "a (exporter/web/guard.py:1) 1",
        "b (exporter/exposition/cuts.py:2) 3",
        f"{waiting} 96",
        "run (threading.py:982) 9",
    ]
    assert listing(stacks, 400e-6).splitlines() == [
        "  300  the join",
        "  100  answering: paths, headers, limits",
        "  400  us of CPU in all",
    ]


def test_every_file_of_the_exporter_that_the_profile_names_is_there() -> None:
    frames = [f"f ({path.relative_to(ROOT)}:1)" for path in (ROOT / "exporter").rglob("*.py")]
    for name, pattern in PARTS.items():
        for alternative in exporter_paths(pattern):
            assert any(re.search(alternative, frame) for frame in frames), (name, alternative)


def exporter_paths(pattern: str) -> list[str]:
    r"""The paths of the exporter in a pattern of PARTS: `\(exporter/(a|b)` is `\(exporter/a` and `\(exporter/b`."""
    paths = []
    for prefix, several, single in re.findall(r"(\\\(exporter/(?:\w+/)*)(?:\(([^()]*)\)|([^|()]+))?", pattern):
        paths += [prefix + end for end in (several.split("|") if several else [single])]
    return paths


def rows_with_aims(text: str) -> list[tuple[str, str, str, str]]:
    """The rows of tables whose heads are what, measured, aim and bench."""
    rows = re.findall(r"^\| ([^|]*) \| ([^|]*) \| ([^|]*?) ?\| (\w+) \|$", text, re.MULTILINE)
    return [row for row in rows if row[2] and row[3] != "bench"]


def aims_of(bench: str) -> set[str]:
    """The aims of a benchmark's rows, in words."""
    source = (ROOT / "benchmarks" / f"{bench}.py").read_text()
    for name, number in re.findall(r"^([A-Z_]+) = ([\d.]+)$", source, re.MULTILINE):
        source = re.sub(rf"\b{name}\b", number, source)
    limits = re.findall(r'at_(most|least)\(([\d.]+), "(\w+)"', source)
    return {f"at {of} {float(limit):g} {unit}" for of, limit, unit in limits} | set(re.findall(r'Aim\("(.*?)"', source))


def numbers_in(text: str) -> list[float]:
    """The numbers of a cell such as `1.2 to 1.3 ms`, in the unit's base."""
    (unit,) = {word for word in text.split() if word in UNITS}
    return [float(number.replace(",", "")) * UNITS[unit] for number in re.findall(r"\d[\d.,]*", text)]


# issue 28, part 4
@pytest.mark.parametrize("row", rows_with_aims(PERFORMANCE), ids=lambda row: row[0])
def test_an_aim_on_the_page_is_the_benchmarks(row: tuple[str, str, str, str]) -> None:
    *_, aim, bench = row
    assert aim in aims_of(bench)


# issue 28, part 4
def test_only_the_rows_under_not_met_miss_their_aim() -> None:
    met, _, rest = PERFORMANCE.partition("## Aims that are not met")
    for text, is_met in ((met, True), (rest, False)):
        rows = rows_with_aims(text)
        assert len(rows) >= 8
        for what, figure, aim, _ in rows:
            numbers = numbers_in(figure.replace("none", "0 MiB"))
            if aim.startswith("at least"):
                assert (min(numbers) >= numbers_in(aim)[0]) is is_met, what
            elif aim.startswith("at most"):
                assert (max(numbers) <= numbers_in(aim)[0]) is is_met, what
            elif aim.startswith("constant"):
                assert (max(numbers) <= 1.25 * min(numbers)) is is_met, what
            else:
                assert (aim, max(numbers) < 0.1, is_met) == ("none", True, True), what
