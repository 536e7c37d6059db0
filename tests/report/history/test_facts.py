"""What a report says beside the accounts: the GPUs that there were, and how long each node was seen."""

import asyncio
import re
from collections.abc import Sequence

import pytest

from exporter.report.history.collect import FactsReader
from exporter.report.history.prometheus_api import AnsweredSeries, RangeAnswer
from exporter.report.span import Span

MINUTE, HOUR = 60_000, 3_600_000
DAY = Span(20_000 * 86_400_000, 20_001 * 86_400_000)
_BY = re.compile(r"by \(([^)]*)\)")
_LOOKS = re.compile(r"\[(\d+)ms:(\d+)ms\]")


class ClustersServer:
    """Eight GPUs on a node of the same name in each cluster. It answers the queries about capacity, and no others.

    A subquery looks at the multiples of its step; `has_left_end` says whether the moment at which the window begins is
    one of them, as in Prometheus before 3.0.
    """

    def __init__(self, clusters: Sequence[str], *, has_left_end: bool) -> None:
        self._clusters = clusters
        self._has_left_end = has_left_end

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        if "node_gpu_capacity" not in expression:
            return RangeAnswer(series=())
        long, step = map(int, _LOOKS.search(expression).groups())  # type: ignore[union-attr]
        begin = at_ms - long
        is_look = begin % step == 0 and self._has_left_end
        first = begin if is_look else begin - begin % step + step
        points = tuple((at / 1000, 8.0) for at in range(first, at_ms + 1, step))
        names = _BY.search(expression)[1].split(", ")  # type: ignore[index]
        rows = {
            tuple((name, labels[name]) for name in names)
            for labels in ({"cluster": cluster, "node": "n", "model": "H100"} for cluster in self._clusters)
        }
        return RangeAnswer(series=[AnsweredSeries(dict(row), points) for row in rows])


@pytest.mark.parametrize("has_left_end", [True, False], ids=["Prometheus 2", "Prometheus 3"])
@pytest.mark.parametrize("clusters", [("a",), ("a", "b")], ids=["one cluster", "two clusters"])
# issue 15, lines 5 and 10
def test_a_day_of_eight_gpus_is_192_gpu_hours_in_each_cluster(clusters: Sequence[str], has_left_end: bool) -> None:
    reader = FactsReader(api=ClustersServer(clusters, has_left_end=has_left_end), matchers=())  # type: ignore[arg-type]
    asyncio.run(read(reader, DAY))
    assert sum(reader.capacity.seconds.values()) / 3600 == 192 * len(clusters)
    assert reader.capacity.seen_ms == {f"{cluster}/n": DAY.ms for cluster in clusters}


async def read(reader: FactsReader, span: Span) -> None:
    await reader.begin(span)
    for piece in span.pieces():
        await reader.read(piece)


class UnscrapedServer:
    """Two GPUs on one node, which nobody scraped in some of the time (milliseconds)."""

    def __init__(self, *unscraped: tuple[int, int]) -> None:
        self._unscraped = unscraped

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        if "node_gpu_capacity" not in expression:
            return RangeAnswer(series=())
        long, step = map(int, _LOOKS.search(expression).groups())  # type: ignore[union-attr]
        moments = range((at_ms - long) // step * step + step, at_ms + 1, step)
        points = [(at / 1000, 2.0) for at in moments if not any(begin <= at < end for begin, end in self._unscraped)]
        answered = AnsweredSeries({"node": "n", "model": "H100"}, tuple(points))
        return RangeAnswer(series=[answered] if points else [])


# issue 22, line 28
@pytest.mark.parametrize("gap_ms", [15_000, 2 * MINUTE, 9 * MINUTE])
@pytest.mark.parametrize("hours", [0.5, 2, 8, 24])
@pytest.mark.parametrize("part", [0.0, 0.31, 0.6])
def test_a_node_unscraped_for_some_minutes_was_there_all_the_time(gap_ms: int, hours: float, part: float) -> None:
    span = Span(DAY.from_ms, DAY.from_ms + int(hours * HOUR))
    begin = span.from_ms + int(part * span.ms) - 5000
    reader = FactsReader(api=UnscrapedServer((begin, begin + gap_ms)), matchers=())  # type: ignore[arg-type]
    asyncio.run(read(reader, span))
    assert sum(reader.capacity.seconds.values()) == 2 * span.ms / 1000
    assert reader.capacity.seen_ms == {"n": span.ms}


def test_a_node_that_was_off_for_an_hour_had_no_gpus_in_it() -> None:
    begin = DAY.from_ms + 7 * HOUR
    reader = FactsReader(api=UnscrapedServer((begin, begin + HOUR)), matchers=())  # type: ignore[arg-type]
    asyncio.run(read(reader, DAY))
    assert reader.capacity.seen_ms == {"n": DAY.ms - HOUR}


class FailingServer:
    """One GPU that a container holds is failing in every look."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        if "pod_gpu_device_verdict" not in expression:
            return RangeAnswer(series=())
        self.asked.append(expression)
        long, step = map(int, _LOOKS.search(expression).groups())  # type: ignore[union-attr]
        return RangeAnswer(series=[AnsweredSeries({}, ((at_ms / 1000, float(long // step + 1)),))])


# issue 30, line 15
def test_a_day_on_a_failing_gpu_is_24_gpu_hours() -> None:
    server = FailingServer()
    reader = FactsReader(api=server, matchers=('job="gpus"',))  # type: ignore[arg-type]
    for piece in DAY.pieces():
        asyncio.run(reader.read(piece))
    assert reader.facts.failing_seconds / 3600 == 24
    assert all('job="gpus"' in asked and 'pod!=""' in asked for asked in server.asked)
