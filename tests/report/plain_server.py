"""A server in memory that answers the reader's queries from the samples that it has: Prometheus, as plain as can be."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from exporter.report.history.prometheus_api import AnsweredSeries, RangeAnswer, TooMuch

Points = Sequence[tuple[float, float]]
_QUERY = re.compile(r"(?:(\w+)\()?(\w+)\{(.*)\}\[(\d+)ms\]\)?(?: > 0)?")
_NODES = re.compile(r'node=~"(.*)"')


def _resets(points: Points) -> float:
    return sum(after < before for (_, before), (_, after) in pairwise(points))


FUNCTIONS: Mapping[str, Callable[[Points], float]] = {
    "min_over_time": lambda points: min(value for _, value in points),
    "last_over_time": lambda points: points[-1][1],
    "resets": _resets,
}


class PlainServer:
    """`series` are labels and points, in order of time. More than `most` points are too much for a query."""

    def __init__(self, series: Sequence[tuple[Mapping[str, str], Points]], most: int = 10**9) -> None:
        self.queries: list[str] = []
        self.read_raw = 0
        self._series = series
        self._most = most

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        self.queries.append(expression)
        found = _QUERY.fullmatch(expression)
        assert found, expression
        function, family, matchers, long = found.groups()
        nodes = _NODES.search(matchers)
        pattern = re.compile(nodes[1].replace("\\\\", "\\")) if nodes else None
        before, last = (at_ms - int(long)) / 1000, at_ms / 1000
        rows = []
        for labels, points in self._series:
            if labels["__name__"] != family or not (pattern is None or pattern.fullmatch(labels["node"])):
                continue
            if points and points[0][0] <= last and points[-1][0] > before:
                begin, end = (bisect_right(points, (second, math.inf)) for second in (before, last))
                if within := tuple(points[begin:end]):
                    rows.append((labels, within))
        touched = sum(len(points) for _, points in rows)
        if touched > self._most:
            raise TooMuch("query processing would load too many samples into memory")
        if not function:
            self.read_raw += touched
            return RangeAnswer(series=[AnsweredSeries(labels, tuple(points)) for labels, points in rows])
        answers = [AnsweredSeries(labels, ((at_ms / 1000, FUNCTIONS[function](points)),)) for labels, points in rows]
        return RangeAnswer(series=[one for one in answers if function != "resets" or one.points[0][1] > 0])
