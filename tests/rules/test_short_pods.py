"""How much of what short pods held each way to ask for it loses: the records, increase() and `report`; by promtool.

docs/promql.md has the table. The exporter looks every 10 s, and shows a pod's row for five minutes after the pod ended.
"""

import asyncio
import json
import math
import random
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import pytest

from exporter.report.span import Span
from exporter.sources.prometheus.history.accounts import AccountsReader
from tests.report.plain_server import PlainServer
from tests.rules.shipped import PROMETHEUS, run
from tests.support.places import ROOT

pytestmark = pytest.mark.real

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
Rows = Mapping[str, Sequence[float | None]]


def pods(length: int, apart: int) -> tuple[Rows, float]:
    """The samples of each pod's row at each scrape, one pod after the other on each GPU; and what all of them held."""
    chance = random.Random(5)
    rows: dict[str, Sequence[float | None]] = {}
    held = 0.0
    scrapes = range(0, END + 1, apart)
    for gpu in range(GPUS):
        at = BEGIN + chance.uniform(0, 60)
        while at + length < BEGIN + HOURS * 3600:
            first, last = (math.ceil(moment / LOOK) * LOOK for moment in (at, at + length))
            labels = f'namespace="a",pod="p{len(rows)}",container="c",UUID="GPU-{gpu}",node="n"'
            rows[f"{FAMILY}{{{labels}}}"] = [
                float(min(at // LOOK * LOOK, last) - first) if first <= at < last + KEEP else None for at in scrapes
            ]
            held += last - first
            at += length + chance.uniform(1, 30)
    return rows, held


def written(values: Sequence[float | None]) -> str:
    """In promtool's notation."""
    return " ".join("_" if value is None else f"{value:g}" for value in values)


def asked(promtool: Path, folder: Path, rows: Rows, apart: int, jobs: Sequence[str] = ("",)) -> dict[str, float]:
    """What each of the ways answers when everything is over: promtool says what it got in place of nothing."""
    series = {
        f'{name[:-1]},job="{job}"}}' if job else name: written(values)
        for name, values in {**rows, 'node_gpu_capacity{model="H100",node="n"}': [4.0] * (END // apart + 1)}.items()
        for job in jobs
    }
    block = {
        "interval": f"{apart}s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{"expr": query, "eval_time": f"{END}s", "exp_samples": []} for query in WAYS.values()],
    }
    settings = {"rule_files": [str(PROMETHEUS / "rules" / "recording.yaml")], "evaluation_interval": "1m"}
    case = folder / "test.yaml"
    case.write_text(json.dumps({**settings, "tests": [block]}))
    with pytest.raises(AssertionError) as failed:
        run(promtool, "test", "rules", case)
    answers = re.findall(r"got:\s*\{\} (\S+?)\"?$", str(failed.value), re.MULTILINE)
    return dict(zip(WAYS, map(float, answers), strict=True))


def reported(rows: Rows, apart: int) -> float:
    """The same by `report`."""
    server = PlainServer(
        [
            (
                {"__name__": FAMILY, **dict(re.findall(r'(\w+)="([^"]*)"', name))},
                [(float(place * apart), value) for place, value in enumerate(values) if value is not None],
            )
            for name, values in {**rows, f'{FAMILY}{{pod="there",node="n"}}': [0.0] * (END // apart + 1)}.items()
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
        rows, held = pods(LENGTHS[length], APART[apart])
        answers = asked(promtool, tmp_path_factory.mktemp("rules"), rows, APART[apart])
        return {way: value / held for way, value in {**answers, "report": reported(rows, APART[apart])}.items()}

    return {(length, apart): part(length, apart) for length in LENGTHS for apart in APART}


# issue 15, line 7
def test_the_records_and_the_report_lose_nothing_of_short_pods(
    parts: Mapping[tuple[str, str], dict[str, float]],
) -> None:
    for case, of_ways in parts.items():
        assert of_ways["the records"] == pytest.approx(1, abs=0.01), case
        assert of_ways["report"] == pytest.approx(1, abs=0.01), case


# issue 15, line 7
def test_the_page_says_how_much_each_way_loses(parts: Mapping[tuple[str, str], dict[str, float]]) -> None:
    lines = [
        f"| {length} | {apart} | "
        + " | ".join(f"{round((of_ways[way] - 1) * 100) + 0:+d} %".replace("+0", "0") for way in ("report", *WAYS))
        + " |"
        for (length, apart), of_ways in parts.items()
    ]
    page = (ROOT / "docs" / "promql.md").read_text()
    assert "\n".join(lines) in page, "\n".join(lines)


# issue 15, line 8
def test_two_jobs_on_one_exporter_record_what_one_job_records(promtool: Path, tmp_path: Path) -> None:
    rows, held = pods(60, 30)
    answers = asked(promtool, tmp_path, rows, 30, ("a", "b"))
    assert answers["the records"] == pytest.approx(held, rel=0.01)
    assert answers["increase()"] > 1.1 * held  # what the page warns of
