"""What the benchmarks make of their figures."""

import re

from benchmarks.compare import compare
from benchmarks.profile import PARTS, listing, part_of
from benchmarks.table import Aim, Row, at_least, at_most, misses, show
from tests.support.places import ROOT


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
