"""Peaks and percentiles by row, piece by piece of a span: what advice rests on (report/advice.py)."""

from collections import defaultdict
from collections.abc import Sequence

from exporter.report.advice import ACTIVITY, MEMORY, Evidence, RowId, RowPeaks
from exporter.report.rows import series_of
from exporter.report.span import Span
from exporter.sources.prometheus.history.api import AnsweredSeries, TooMuch
from exporter.sources.prometheus.history.collect import RangeServer, halves, quoted, selector

_FUNCTIONS = {"max": "max_over_time(", "p95": "quantile_over_time(0.95, "}
_LOOK_MS = 300_000  # how far back Prometheus looks: shorter gaps are none
_HELD = "pod_gpu_allocated_ratio"


class PeaksReader:
    """Reads a span's pieces into `rows`. A p95 of a span is the highest of its pieces, which is never below it."""

    def __init__(self, api: RangeServer, matchers: Sequence[str], cluster_label: str) -> None:
        self.rows = defaultdict[RowId, RowPeaks](RowPeaks)
        self._api = api
        self._matchers = (*matchers, 'pod!=""', 'holds!="false"')
        self._cluster_label = cluster_label

    async def read(self, piece: Span) -> None:
        """Add what is known of a piece. Raises SourceError: see `PrometheusApi.query`."""
        for family in (*MEMORY, *ACTIVITY):
            for function in _FUNCTIONS if family in ACTIVITY else ("max",):
                await self._read_evidence(function, family, piece)
            seen = f"count_over_time({selector(family, self._matchers)}[{{looks}}])"
            for row, series, _ in await self._largest(seen, piece):
                of = self.rows[row].seen
                of[family] = of.get(family, 0.0) + series.points[-1][1] * _LOOK_MS / 1000
        held = selector(_HELD, self._matchers)
        for row, series, _ in await self._largest(f"min_over_time({held}[{{ms}}])", piece):
            self.rows[row].share = min(self.rows[row].share or 1.0, series.points[-1][1])
        info = selector("pod_gpu_info", (*self._matchers, 'GPU_I_PROFILE!=""'))
        for row, series, _ in await self._largest(f"last_over_time({info}[{{ms}}])", piece):
            self.rows[row].profile = series.labels["GPU_I_PROFILE"]
        by = "node, namespace, pod, container"
        several = f"max_over_time(count by ({by}) (max by ({by}, UUID, GPU_I_ID) ({held}))[{{looks}}]) > 1"
        holders = {row[:3] for row, _, _ in await self._largest(several, piece)}
        for row in [row for row in self.rows if row[:3] in holders]:
            self.rows[row].has_several = True

    async def _read_evidence(self, function: str, family: str, piece: Span) -> None:
        asked = f"{_FUNCTIONS[function]}{selector(family, self._matchers)}[{{ms}}])"
        for row, series, ms in await self._largest(asked, piece):
            (at, value), evidence = series.points[-1], self.rows[row].evidence
            if (function, family) not in evidence or evidence[function, family].value < value:
                exact = selector(family, (f"{name}={quoted(text)}" for name, text in sorted(series.labels.items())))
                evidence[function, family] = Evidence(
                    value, f"{_FUNCTIONS[function]}{exact}[{ms}ms])", round(at * 1000)
                )

    async def _largest(self, asked: str, piece: Span) -> Sequence[tuple[RowId, AnsweredSeries, int]]:
        """What it says of each row, and of how many milliseconds; where several scrapers have a row, the largest."""
        # before Prometheus 3.0 a window has both its ends: a whole one would have a look more than steps
        expression = asked.replace("{ms}", f"{piece.ms}ms").replace("{looks}", f"{piece.ms - 1}ms:{_LOOK_MS}ms")
        try:
            answer = await self._api.query(expression, piece.to_ms)
        except TooMuch as error:
            return [one for half in halves(piece, error) for one in await self._largest(asked, half)]
        rows: dict[RowId, AnsweredSeries] = {}
        for series in sorted(answer.series, key=lambda one: one.points[-1][1]):
            rows[series_of(series.labels, series.points, frozenset(), self._cluster_label).key[:5]] = series
        return [(row, series, piece.ms) for row, series in rows.items()]
