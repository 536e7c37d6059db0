"""How much of what short pods held each way to ask for it loses: the records, increase() and `report`; by promtool.

docs/promql.md has the table. The exporter looks every 10 s, and shows a pod's row for five minutes after the pod ended.
A server with created-timestamp zero ingestion has a 0 at the look that first saw the pod, too: so "with begins".
"""

import asyncio
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from exporter.report.history.collect import AccountsReader
from exporter.report.span import Span
from tests.report.plain_server import PlainServer
from tests.rules.shipped import run, write_needed
from tests.support.places import ROOT

# what is asked of promtool for all lengths at once takes half a minute on a machine that does nothing else
pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

FAMILY = "pod_gpu_allocated_seconds_total"
LOOK, KEEP = 10, 300
BEGIN, HOURS, QUIET = 1200, 2, 900  # seconds; the node is there before the first pod, and after the last one
END = BEGIN + HOURS * 3600 + QUIET
GPUS = 4
LENGTHS = {"20 s": 20, "1 min": 60, "5 min": 300, "1 h": 3600}
APART = {"15 s": 15, "30 s": 30, "60 s": 60}
WAYS = {
    "the records": "sum(sum_over_time(cluster:pod_gpu_allocated_seconds:rate5m[3h])) * 60",
    "increase()": f"sum(increase({FAMILY}[3h]))",
}
WITH_BEGINS = " with begins"
COLUMNS = ("increase()", "increase()" + WITH_BEGINS)
Rows = Mapping[str, Sequence[float | None]]


def step_of(apart: int, *, begins: bool) -> int:
    """Seconds between two moments at which there may be a sample."""
    return math.gcd(apart, LOOK) if begins else apart


def pods(length: int, apart: int, *, begins: bool = False) -> tuple[Rows, float]:
    """The samples of each pod's row at each moment, one pod after the other on each GPU; and what all of them held."""
    chance = random.Random(5)
    rows: dict[str, Sequence[float | None]] = {}
    held = 0.0
    moments = range(0, END + 1, step_of(apart, begins=begins))
    for gpu in range(GPUS):
        at = BEGIN + chance.uniform(0, 60)
        while at + length < BEGIN + HOURS * 3600:
            first, last = (math.ceil(moment / LOOK) * LOOK for moment in (at, at + length))
            labels = f'namespace="a",pod="p{len(rows)}",container="c",UUID="GPU-{gpu}",node="n"'
            rows[f"{FAMILY}{{{labels}}}"] = [
                float(min(at // LOOK * LOOK, last) - first)
                if (first <= at < last + KEEP and at % apart == 0) or (begins and at == first)
                else None
                for at in moments
            ]
            held += last - first
            at += length + chance.uniform(1, 30)
    return rows, held


def written(values: Sequence[float | None]) -> str:
    """Values in promtool's notation, up to the last sample: `5x2` is three samples of 5, `_x2` two missing ones."""
    runs = [(value, sum(1 for _ in run)) for value, run in groupby(values)]
    runs = runs[:-1] if runs[-1][0] is None else runs
    return " ".join(f"_x{many}" if value is None else f"{value:g}x{many - 1}" for value, many in runs)


def asked(
    promtool: Path, folder: Path, rows: Rows, apart: int, jobs: Sequence[str] = ("",), *, begins: bool = False
) -> dict[str, float]:
    """What each of the ways answers when everything is over: promtool says what it got in place of nothing."""
    step = step_of(apart, begins=begins)
    there = [4.0 if at % apart == 0 else None for at in range(0, END + 1, step)]
    series = {
        f'{name[:-1]},job="{job}"}}' if job else name: written(values)
        for name, values in {**rows, 'node_gpu_capacity{model="H100",node="n"}': there}.items()
        for job in jobs
    }
    block = {
        "interval": f"{step}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{END}s", "exp_samples": []} for query in WAYS.values()],
    }
    write_needed(folder / "rules.yaml", " ".join(WAYS.values()))
    settings = {"rule_files": [str(folder / "rules.yaml")], "evaluation_interval": "1m"}
    case = folder / "test.yaml"
    case.write_text(json.dumps({**settings, "tests": [block]}))
    with pytest.raises(AssertionError) as failed:
        run(promtool, "test", "rules", case)
    answers = re.findall(r"got:\s*\{\} (\S+?)\"?$", str(failed.value), re.MULTILINE)
    return dict(zip(WAYS, map(float, answers), strict=True))


def reported(rows: Rows, apart: int, *, begins: bool = False) -> float:
    """The same by `report`."""
    step = step_of(apart, begins=begins)
    there: dict[str, Sequence[float | None]] = {
        f'{FAMILY}{{pod="there",node="n"}}': [0.0] * (END // step + 1),
        'node_gpu_capacity{model="H100",node="n"}': [
            4.0 if at % apart == 0 else None for at in range(0, END + 1, step)
        ],
    }
    server = PlainServer(
        [
            (
                {"__name__": name.partition("{")[0], **dict(re.findall(r'(\w+)="([^"]*)"', name))},
                [(float(place * step), value) for place, value in enumerate(values) if value is not None],
            )
            for name, values in {**rows, **there}.items()
        ]
    )

    async def read() -> float:
        reader = AccountsReader(api=server, matchers=(), wanted=frozenset())
        span = Span(600_000, END * 1000)
        await reader.begin(span)
        for piece in span.pieces():
            await reader.read(piece)
        return sum(amounts.held for amounts in reader.growth.grown.values())

    return asyncio.run(read())


@pytest.fixture(scope="module")
def parts(promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[str, str], dict[str, float]]:
    """Which part of what was held each way answers, by the pods' length and the time between scrapes."""

    @cache
    def part(length: str, apart: str) -> dict[str, float]:
        answers: dict[str, float] = {}
        for begins, suffix in ((False, ""), (True, WITH_BEGINS)):
            rows, held = pods(LENGTHS[length], APART[apart], begins=begins)
            ways = asked(promtool, tmp_path_factory.mktemp("rules"), rows, APART[apart], begins=begins)
            ways["report"] = reported(rows, APART[apart], begins=begins)
            answers |= {way + suffix: value / held for way, value in ways.items()}
        return answers

    return {(length, apart): part(length, apart) for length in LENGTHS for apart in APART}


# issue 15, line 7
def test_the_records_and_the_report_lose_nothing_of_short_pods(
    parts: Mapping[tuple[str, str], dict[str, float]],
) -> None:
    for case, of_ways in parts.items():
        for way in ("the records", "report"):
            assert of_ways[way] == pytest.approx(1, abs=0.01), case
            assert of_ways[way + WITH_BEGINS] == pytest.approx(1, abs=0.01), case


def lost(part: float) -> str:
    """As the page says how much more or less than all a part is."""
    return f"{round((part - 1) * 100) + 0:+d} %".replace("+0", "0")


# issue 15, line 7
def test_the_page_says_how_much_each_way_loses(parts: Mapping[tuple[str, str], dict[str, float]]) -> None:
    lines = [
        f"| {length} | "
        + " | ".join(", ".join(lost(parts[length, apart][way]) for apart in APART) for way in COLUMNS)
        + " |"
        for length in LENGTHS
    ]
    page = (ROOT / "docs" / "promql.md").read_text()
    assert "\n".join(lines) in page, "\n".join(lines)


# issue 15, line 8
def test_two_jobs_on_one_exporter_record_what_one_job_records(promtool: Path, tmp_path: Path) -> None:
    rows, held = pods(60, 30)
    answers = asked(promtool, tmp_path, rows, 30, ("a", "b"))
    assert answers["the records"] == pytest.approx(held, rel=0.01)
    assert answers["increase()"] > 1.1 * held  # what the page warns of
