"""What rows grew, against every sample that there was."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.report.growth import Growth
from exporter.report.history.collect import CAPACITY, AccountsReader
from exporter.report.rows import FAMILIES, Amounts, RowKey
from exporter.report.span import Span
from tests.report.plain_server import PlainServer, Points

HELD = FAMILIES[0]
HOUR = 3600
Row = tuple[Mapping[str, str], Points]


def row(pod: str, points: Points, *, node: str = "n", target: str = "n:9400", **labels: str) -> Row:
    family = labels.pop("family", HELD)
    of = {"__name__": family, "namespace": "a", "pod": pod, "container": "c", "UUID": "GPU-1", "node": node}
    return {**of, "job": "gpu", "instance": target, **labels}, points


def gauge(points: Points, node: str = "n") -> Row:
    return {"__name__": CAPACITY, "model": "H100", "node": node, "instance": node}, [(at, 8.0) for at, _ in points]


def line(start: int, end: int, first: float = 0.0, step: int = 60, per_second: float = 1.0) -> Points:
    """A sample every `step` seconds."""
    return [(float(at), first + (at - start) * per_second) for at in range(start, end, step)]


def read(rows: Sequence[Row], span: Span, most: int = 10**9) -> tuple[Growth, PlainServer]:
    server = PlainServer(rows, most)

    async def run() -> Growth:
        reader = AccountsReader(api=server, matchers=(), wanted=frozenset({"label_team"}))
        await reader.begin(span)
        for piece in span.pieces():
            await reader.read(piece)
        return reader.growth

    return asyncio.run(run()), server


def held(growth: Growth) -> dict[str, float]:
    found = defaultdict[str, float](float)
    for key, amounts in growth.grown.items():
        found[key.pod] += amounts.held
    return dict(found)


DAY = Span(10 * 86_400_000, 11 * 86_400_000)
START = DAY.from_ms // 1000
END = DAY.to_ms // 1000
OF_NODE = row("there", line(START - HOUR, END + HOUR))


@dataclass(frozen=True)
class Case:
    rows: Sequence[Row]
    grew: Mapping[str, float]
    restarts: Mapping[str, int] | None = None


WHOLE = 86_400.0
CASES = {
    "a row that was there before and after": Case([], {}),
    "a pod that came and went is counted from 0, also before it was first scraped": Case(
        [row("short", line(START + 7200, START + 7800, first=45))], {"short": 45 + 540}
    ),
    "a pod that lived for one scrape": Case([row("one", [(START + 9000.0, 12.0)])], {"one": 12}),
    "a pod of the same name that comes again, and holds for longer": Case(
        [row("again", [*line(START + 600, START + 4200), *line(START + 50_000, START + 60_020, step=20)])],
        {"again": 3540 + 10_000},
    ),
    "a pod that went before the span, and came again in it": Case(
        [row("again", [*line(START - 4000, START - 1000), *line(START + 50_000, START + 50_320, step=20)])],
        {"again": 300},
    ),
    "an exporter that restarts": Case(
        [row("held", [*line(START - 60, START + 30_000), *line(START + 30_030, END)])],
        {"held": 30_000 - 60 + len(range(START + 30_030, END, 60)) * 60 - 60},
    ),
    "an exporter under another address counts on where it was": Case(
        [
            row("held", line(START - 600, START + 30_000, first=500), target="n:1"),
            row("held", line(START + 30_060, END, first=30_060 + 500 + 600), target="n:2"),
        ],
        {"held": float(len(range(START, END, 60)) * 60 - 60)},
    ),
    "an exporter under another address begins at 0": Case(
        [
            row("held", line(START - 600, START + 30_000, first=500), target="n:1"),
            row("held", line(START + 30_060, END), target="n:2"),
        ],
        {"held": 30_000 - 60 + float(len(range(START + 30_060, END, 60)) * 60 - 60)},
    ),
    "an exporter that began at 0 under another address right before the span": Case(
        [
            row("held", line(START - 6000, START - 200), target="n:1"),
            row("held", line(START - 100, END), target="n:2"),
        ],
        {"held": float(len(range(START - 100, END, 60)) * 60 - 60)},
    ),
    "two servers that scrape one exporter": Case(
        [row("held", line(START - 60, END), target="a"), row("held", line(START - 45, END, first=15), target="b")],
        {"held": float(END - 45 - START)},
    ),
    "a server that renames labels": Case(
        [row("exporter-x", line(START + 600, START + 900), exported_pod="p", exported_namespace="a")], {"p": 240}
    ),
    "labels of pods that come later": Case(
        [
            row("late", line(START + 600, START + 900)),
            row("late", line(START + 900, START + 9000, first=300), label_team="x"),
        ],
        {"late": 8340},
    ),
    "a pod of the same name that comes again, with other labels": Case(
        [
            row("again", line(START - HOUR, START + 4200), pod_uid="1"),
            row("again", line(START + 5000, START + 5320, step=20), pod_uid="2"),
        ],
        {"again": 4200 - 60 + 300},
    ),
    "two pods of one name, both within the span": Case(
        [
            row("again", line(START + 3700, START + 4900), pod_uid="1"),
            row("again", line(START + 5000, START + 5320, step=20), pod_uid="2"),
        ],
        {"again": 1140 + 300},
    ),
    "a node that nobody scraped before counts from its first scrape on": Case(
        [
            row("old", line(START + 4000, END, first=1e6), node="new", target="new:9400"),
            row("young", line(START + 8000, START + 9000, first=30), node="new", target="new:9400"),
        ],
        {"old": float(len(range(START + 4000, END, 60)) * 60 - 60), "young": 30 + 960},
    ),
    "begins, where Prometheus puts a 0, between the samples of a node": Case(
        [row("short", [(START + 7195.0, 0.0), *line(START + 7200, START + 7800, first=5)])], {"short": 5 + 540}
    ),
    "begins before a node's first scrape, and an older row without one": Case(
        [
            gauge(line(START + 4000, END), node="new"),
            row("old", line(START + 4000, END, first=1e6), node="new", target="new:9400"),
            row("young", [(START + 3900.0, 0.0), *line(START + 4000, END, first=100)], node="new", target="new:9400"),
            row("long", [(START + 60.0, 0.0), *line(START + 4000, END, first=3940)], node="new", target="new:9400"),
        ],
        {
            "old": float(len(range(START + 4000, END, 60)) * 60 - 60),
            "young": float(len(range(START + 4000, END, 60)) * 60 - 60) + 100,
            "long": float(len(range(START + 4000, END, 60)) * 60 - 60) + 3940,
        },
    ),
    "a begin right before the span, of a node that was not scraped then": Case(
        [
            gauge(line(START + 4000, END), node="new"),
            row("old", line(START + 4000, END, first=1e6), node="new", target="new:9400"),
            row("young", [(START - 60.0, 0.0), *line(START + 4000, END, first=4060)], node="new", target="new:9400"),
        ],
        {
            "old": float(len(range(START + 4000, END, 60)) * 60 - 60),
            "young": float(len(range(START + 4000, END, 60)) * 60 - 60) + 4060,
        },
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_grew(case: Case) -> None:
    growth, _ = read([OF_NODE, *case.rows], DAY)
    found = held(growth)
    assert found.pop("there") == pytest.approx(WHOLE - 0.0, abs=60)
    assert found == pytest.approx(case.grew)


def test_a_restart_is_told_by_rows_that_are_there_as_long_as_their_gpu() -> None:
    energy = [*line(START - 60, START + 30_000), *line(START + 30_030, START + 50_000), *line(START + 50_010, END)]
    rows = [OF_NODE, *(row("", energy, family=FAMILIES[3], UUID=uuid) for uuid in ("GPU-1", "GPU-2"))]
    growth, _ = read(rows, DAY)
    assert growth.restarts == {"n": 2}
    assert growth.began_seconds is None


# issue 15, line 10
def test_every_restart_counts_though_no_row_shows_them_all() -> None:
    """Of two GPUs one is held all day and has nothing to lose, until the other one is held instead."""
    ends = [START + hours * HOUR for hours in (2, 5, 9, 14)]
    idle = {"GPU-1": ends[:2], "GPU-2": ends[2:]}
    rows = [OF_NODE]
    for uuid, restarts in idle.items():
        moments = [START - 60, *restarts, END]
        energy = [point for begin, end in pairwise(moments) for point in line(begin, end)]
        rows.append(row("", energy, family=FAMILIES[3], UUID=uuid))
    growth, _ = read(rows, DAY)
    assert growth.restarts == {"n": len(ends)}


def held_from(*begins: int, pod: str, first: float = 0.0) -> Row:
    """A pod that holds a GPU all day; its counter begins at 0 at each of these moments."""
    moments = [START - 600, *begins, END]
    points = [point for begin, end in pairwise(moments) for point in line(begin, end, first=first, step=15)]
    return row(pod, points)


# issue 22, line 31
@pytest.mark.parametrize("offset", [-7, 0, 8, 600])
def test_every_restart_of_24_is_told_where_every_gpu_is_held_all_day(offset: int) -> None:
    """Nobody's rows have nothing to lose there. Some restarts are at the end of a piece: no query looks across it."""
    moments = [START + 1800 + number * 3450 + offset for number in range(24)]
    pods = [held_from(*moments, pod=f"trainer-{number}") for number in range(2)]
    growth, _ = read([*pods, row("", line(START - 600, END, per_second=0.0), family=FAMILIES[3])], DAY)
    assert growth.restarts == {"n": 24}


# issue 22, line 31
def test_pods_that_are_made_anew_are_no_restart_of_the_exporter() -> None:
    moments = [START + number * 3600 for number in range(1, 20)]
    rows = [held_from(*moments, pod="a"), held_from(*(at + 15 for at in moments), pod="b"), held_from(pod="c")]
    growth, _ = read(rows, DAY)
    assert growth.restarts == {}


def test_data_that_begins_within_the_span_is_told() -> None:
    growth, _ = read([row("q", line(START + 5010, END), node="m"), row("p", line(START + 5000, END))], DAY)
    assert growth.began_seconds == START + 5000


def test_few_samples_are_read_one_by_one_where_one_exporter_restarted() -> None:
    restarted = [*line(START - 60, START + 30_200), *line(START + 30_230, END)]
    rows = [OF_NODE, row("p", restarted), *(row(f"q{i}", line(START - 60, END), node="m") for i in range(3))]
    _, server = read(rows, DAY)
    assert 0 < server.read_raw < sum(len(points) for _, points in rows) / 10


@pytest.mark.parametrize(
    ("ms", "most_samples", "read_ms"),
    [
        (900_000, 0, 900_000),
        (900_001, 0, 150_001),
        (900_001, 60, 150_001),  # a sample each 15 s of one row are sixty in a quarter of an hour
        (900_001, 61, 900_001),
        (900_000 * 7, 420, 900_000 * 7),
    ],
)
def test_all_samples_are_read_of_a_quarter_of_an_hour_or_of_few_rows(
    ms: int, most_samples: int, read_ms: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("exporter.report.history.collect.MOST_SAMPLES", most_samples)
    restarts = START + 10
    server = PlainServer([row("p", [*line(START - 60, restarts, step=5), *line(restarts, END, step=5)])])

    async def run() -> None:
        reader = AccountsReader(api=server, matchers=(), wanted=frozenset())
        await reader.begin(Span(DAY.from_ms, DAY.from_ms + ms))
        await reader.read(Span(DAY.from_ms, DAY.from_ms + ms))

    asyncio.run(run())
    assert [asked for asked in server.queries if asked.startswith(HELD)] == [f'{HELD}{{node=~"n"}}[{read_ms}ms]']


def test_what_is_too_much_for_a_server_is_asked_about_less() -> None:
    rows = [OF_NODE, *CASES["an exporter that restarts"].rows]
    plain, _ = read(rows, DAY)
    growth, server = read(rows, DAY, most=30)
    assert held(growth) == pytest.approx(held(plain))
    assert len(server.queries) > 32 * 12


def test_labels_of_a_row_are_the_newest() -> None:
    rows = [
        OF_NODE,
        row("p", line(START + 60, START + 6000), label_team="x", label_other="o"),
        row("p", line(START + 6000, START + 9000, first=5940), label_team="y"),
    ]
    growth, _ = read(rows, DAY)
    assert {key.pod: labels for key, labels in growth.labels.items() if labels} == {"p": {"label_team": "y"}}


def test_pieces_add_up_to_the_whole() -> None:
    server = PlainServer([OF_NODE])

    async def run() -> tuple[Amounts, Amounts]:
        reader = AccountsReader(api=server, matchers=(), wanted=frozenset())
        await reader.begin(DAY)
        pieces = Amounts()
        for piece in DAY.pieces():
            await reader.read(piece)
            pieces = pieces.plus(reader.growth.take_lately())
        (whole,) = reader.growth.grown.values()
        return pieces, whole

    pieces, whole = asyncio.run(run())
    assert pieces == pytest.approx(whole)


@st.composite
def histories(draw: st.DrawFn) -> tuple[Sequence[Row], dict[str, float]]:
    """Rows of two nodes that were both there before the span: each grows, stands, falls, is away, in any order."""
    rows, truth = [], {}
    for node in ("n", "m"):
        rows.append(row(f"there-{node}", line(START - 60, END, step=300), node=node, target=node))
        rows.append(gauge(line(START - 60, END, step=300), node=node))
        truth[f"there-{node}"] = float(len(range(START - 60, END, 300)) * 300 - 300)
        for place in range(draw(st.integers(0, 3))):
            at, value, grew = float(START + draw(st.integers(1, 70_000))), 0.0, 0.0
            points = []
            for apart, step in draw(st.lists(st.tuples(st.integers(1, 9000), st.integers(0, 50)), max_size=25)):
                if step == 0 and value:  # it begins anew
                    value = 0.0
                value, grew = value + step, grew + step
                points.append((at, value))
                at += apart
            points = [(when, value) for when, value in points if when <= END]
            if points:
                rows.append(row(f"{node}{place}", points, node=node, target=node))
    return rows, truth


def plain_growth(points: Points) -> float:
    """Rule 1 and rule 3, sample by sample."""
    grew = before = 0.0
    for _, value in points:
        grew += value - before if value >= before else value
        before = value
    return grew


@pytest.mark.history
@settings(max_examples=60, deadline=None)
@given(histories(), st.sampled_from((10**9, 40)))
def test_what_is_read_in_pieces_is_what_every_sample_says(
    history: tuple[Sequence[Row], dict[str, float]], most: int
) -> None:
    rows, truth = history
    for labels, points in rows:
        if "pod" in labels and labels["pod"] not in truth:
            truth[labels["pod"]] = plain_growth(points)
    growth, _ = read(rows, DAY, most)
    assert held(growth) == pytest.approx({pod: seconds for pod, seconds in truth.items() if seconds})


# issue 15, line 27
@pytest.mark.parametrize("turn", [1, -1], ids=["older row first", "younger row first"])
def test_a_new_nodes_first_scrape_counts_from_there_in_any_order(turn: int) -> None:
    old, young = (row(name, line(START + at, START + 1500, first=1000)) for name, at in (("old", 600), ("young", 900)))
    growth, _ = read([old, young][::turn], DAY)
    assert held(growth) == {"old": 840, "young": 1540}


def test_a_row_that_nobody_knows_a_node_of_is_counted_too() -> None:
    rows = [row("p", [*line(START - 60, START + 30_000), *line(START + 30_030, END)], node="")]
    growth, _ = read(rows, DAY)
    assert set(growth.grown) == {RowKey("a", "p", "c", "GPU-1", "", "")}
