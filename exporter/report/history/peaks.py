"""Peaks and percentiles of rows, piece by piece of a span, for advice (report/advice.py).

Tests: tests/report/history/test_peaks.py, tests/end_to_end/test_report_advises.py.
"""

from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter

from exporter.report.advice import ACTIVITY, MEMORY, Evidence, RowId, RowPeaks
from exporter.report.history.collect import RangeServer, halves, quoted, selector
from exporter.report.history.prometheus_api import AnsweredSeries, TooMuch
from exporter.report.rows import series_of
from exporter.report.span import Span

_FUNCTIONS = {"max": "max_over_time(", "p95": "quantile_over_time(0.95, "}
_LOOK_MS = 300_000  # Prometheus looks back this far, and so bridges shorter gaps
_HELD = "pod_gpu_allocated_ratio"
_CONTAINER = 3  # the number of a RowId's parts that name the container


class PeaksReader:
    """A reader of peaks, by row. The p95 of a span is the highest p95 of its pieces, which is never too low."""

    def __init__(self, api: RangeServer, matchers: Sequence[str], cluster_label: str) -> None:
        self.rows = defaultdict[RowId, RowPeaks](RowPeaks)
        self._api = api
        self._matchers = (*matchers, 'pod!=""', 'holds!="false"')
        self._cluster_label = cluster_label

    async def read(self, piece: Span) -> None:
        """Add the peaks of a piece. Raises SourceError as `PrometheusApi.query` does."""
        for family in MEMORY:
            await self._read_highest("max", family, piece)
            await self._read_seconds_seen(family, piece)
        for family in ACTIVITY:
            await self._read_highest("max", family, piece)
            await self._read_highest("p95", family, piece)
            await self._read_seconds_seen(family, piece)
        await self._read_shares(piece)
        await self._read_profiles(piece)
        await self._read_holders_of_several(piece)

    async def _read_highest(self, function: str, family: str, piece: Span) -> None:
        """Keep the highest value of each row, with the query that gives exactly that value again."""
        call = _FUNCTIONS[function]
        asked = f"{call}{selector(family, self._matchers)}[{{ms}}])"
        for row, series, ms in await self._largest(asked, piece):
            evidence = self.rows[row].evidence
            at_seconds, value = series.points[-1]
            highest = evidence.get((function, family))
            if highest is not None and highest.value >= value:
                continue
            labels = (f"{name}={quoted(text)}" for name, text in sorted(series.labels.items()))
            query = f"{call}{selector(family, labels)}[{ms}ms])"
            evidence[function, family] = Evidence(value, query, round(at_seconds * 1000))

    async def _read_seconds_seen(self, family: str, piece: Span) -> None:
        """Add the seconds in which each row had a value."""
        asked = f"count_over_time({selector(family, self._matchers)}[{{looks}}])"
        for row, series, _ in await self._largest(asked, piece):
            seen = self.rows[row].seen
            seen[family] = seen.get(family, 0.0) + series.last * _LOOK_MS / 1000

    async def _read_shares(self, piece: Span) -> None:
        """Keep the least part of a GPU that each row held."""
        held = selector(_HELD, self._matchers)
        for row, series, _ in await self._largest(f"min_over_time({held}[{{ms}}])", piece):
            peaks = self.rows[row]
            peaks.share = min(peaks.share or 1.0, series.last)

    async def _read_profiles(self, piece: Span) -> None:
        info = selector("pod_gpu_info", (*self._matchers, 'GPU_I_PROFILE!=""'))
        for row, series, _ in await self._largest(f"last_over_time({info}[{{ms}}])", piece):
            self.rows[row].profile = series.labels["GPU_I_PROFILE"]

    async def _read_holders_of_several(self, piece: Span) -> None:
        """Mark the rows of containers that held several devices at once."""
        held = selector(_HELD, self._matchers)
        by = "node, namespace, pod, container"
        asked = f"max_over_time(count by ({by}) (max by ({by}, UUID, GPU_I_ID) ({held}))[{{looks}}]) > 1"
        holders = {row[:_CONTAINER] for row, _, _ in await self._largest(asked, piece)}
        for row, peaks in self.rows.items():
            if row[:_CONTAINER] in holders:
                peaks.has_several = True

    async def _largest(self, asked: str, piece: Span) -> Sequence[tuple[RowId, AnsweredSeries, int]]:
        """Each row's answer, and the milliseconds that it covers. If several scrapers have a row, the largest counts.

        In `asked`, `{ms}` stands for the length of the piece and `{looks}` for a subquery of it.
        """
        # Before Prometheus 3.0 a window includes both its ends. So a whole window would have one look more than steps.
        looks = f"{piece.ms - 1}ms:{_LOOK_MS}ms"
        expression = asked.replace("{ms}", f"{piece.ms}ms").replace("{looks}", looks)
        try:
            answer = await self._api.query(expression, piece.to_ms)
        except TooMuch as error:
            of_halves = [await self._largest(asked, half) for half in halves(piece, error)]
            return [row for rows in of_halves for row in rows]
        largest: dict[RowId, AnsweredSeries] = {}
        for series in sorted(answer.series, key=attrgetter("last")):
            key = series_of(series.labels, series.points, frozenset(), self._cluster_label).key
            largest[key[:5]] = series
        return [(row, series, piece.ms) for row, series in largest.items()]
