"""The accounts of a span, from a Prometheus server: a piece at a time, and each sample where nothing less would do.

For every piece of the span and every family the server is asked for three things: each row's first value (as counters
grow, `min_over_time`), its last value, and the rows that fell. Where that does not tell enough (report/growth.py says
when) every sample is read, of the nodes in question alone. Where those are many, the piece is cut in six first, and
only the parts in which something happened are read so. A week costs some five hundred small queries, and a restart of
an exporter a few more.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from exporter.errors import Malformed, Unavailable
from exporter.report.growth import Growth, Piece
from exporter.report.rows import FAMILIES, Series, is_renamed, series_of
from exporter.report.span import Span
from exporter.sources.prometheus.history.answers import Answer
from exporter.sources.prometheus.history.api import TooMuch
from exporter.sources.prometheus.history.selectors import batches, of_nodes, selector

MOST_ROWS = 1_000_000
# Every sample is read of a piece as short as this, or one that has no more samples than that, if exporters are scraped
# every 15 s. Any other is cut first.
RAW_MS = 15 * 60_000
MOST_SAMPLES = 100_000
_USUAL_SCRAPE_MS = 15_000
_CUT = 6
# A query that was too much is asked about less, but not about less than this.
LEAST_MS = 60_000
# How far back Prometheus itself looks for the value of a moment.
LOOKBACK_MS = 5 * 60_000


class Server(Protocol):
    """What answers queries: a Prometheus."""

    async def query(self, expression: str, at_ms: int) -> Answer:
        """What an instant query about a moment answers; see `PrometheusApi.query`."""
        ...


class AccountsReader:
    """Reads the rows of a span into a `Growth`."""

    def __init__(self, *, api: Server, matchers: Sequence[str], wanted: frozenset[str]) -> None:
        """`matchers` go with every query; `wanted` are the labels that a report may group by."""
        self.growth = Growth()
        self.odd = 0
        self.has_renamed = False
        self.warnings: dict[str, None] = {}
        self._api = api
        self._matchers = tuple(matchers)
        self._wanted = wanted

    async def begin(self, span: Span) -> None:
        """Note what rows are at the beginning of the span.

        Raises:
            SourceError: see `read`.
        """
        before = Span(span.from_ms - LOOKBACK_MS, span.from_ms)
        self.growth.begin(await self._all("last_over_time", before, self._matchers))

    async def read(self, piece: Span) -> None:
        """Add what grew in a piece of the span; pieces come in their order.

        Raises:
            SourceError: the server does not answer, or not with what Prometheus answers, or with too much.
        """
        await self._read(piece, self._matchers)
        if self.growth.rows > MOST_ROWS:
            raise Malformed(
                "oversize",
                f"the span has more than {MOST_ROWS} rows",
                remedy="ask for less at a time with --match, such as --match cluster=a, or for a shorter span",
            )

    async def _read(self, piece: Span, matchers: Sequence[str]) -> None:
        try:
            first, last, fell = [
                await self._all(function, piece, matchers) for function in ("min_over_time", "last_over_time", "resets")
            ]
        except TooMuch as error:
            if piece.ms <= LEAST_MS:
                raise _too_much(error) from error
            for shorter in piece.cut(-(-piece.ms // 2)):
                await self._read(shorter, matchers)
            return
        pieces = [Piece(first=one, last=two, fell=three) for one, two, three in zip(first, last, fell, strict=True)]
        for nodes in batches(self.growth.count(pieces)):
            of_these = (*self._matchers, of_nodes(nodes))
            rows = max(sum(one.key.node in nodes for one in found) for found in last)
            if piece.ms <= RAW_MS or rows * piece.ms <= MOST_SAMPLES * _USUAL_SCRAPE_MS:
                await self._replay(piece, of_these)
                continue
            for shorter in piece.cut(-(-piece.ms // _CUT)):
                await self._read(shorter, of_these)

    async def _replay(self, piece: Span, matchers: Sequence[str]) -> None:
        try:
            samples = await self._all("", piece, matchers)
        except TooMuch as error:
            if piece.ms <= LEAST_MS:
                raise _too_much(error) from error
            for shorter in piece.cut(-(-piece.ms // 2)):
                await self._replay(shorter, matchers)
            return
        self.growth.replay(samples, piece.from_ms / 1000)

    async def _all(self, function: str, piece: Span, matchers: Sequence[str]) -> Sequence[Sequence[Series]]:
        """Of every family, what the function says of the piece; every sample where there is none."""
        return await asyncio.gather(*(self._one(function, family, piece, matchers) for family in FAMILIES))

    async def _one(self, function: str, family: str, piece: Span, matchers: Sequence[str]) -> Sequence[Series]:
        rows = f"{selector(family, matchers)}[{piece.ms}ms]"
        expression = f"{function}({rows})" if function else rows
        if function == "resets":
            expression += " > 0"
        answer = await self._api.query(expression, piece.to_ms)
        self.odd += answer.odd
        self.has_renamed |= any(is_renamed(found.labels) for found in answer.series)
        self.warnings.update(dict.fromkeys(answer.warnings))
        return [series_of(found.labels, found.points, self._wanted) for found in answer.series]


def _too_much(error: TooMuch) -> Unavailable:
    return Unavailable(
        "http_status",
        f"the server cannot answer even for a minute of it: {error}",
        remedy="ask for less at a time with --match, such as --match cluster=a, or give it more time with --timeout",
    )
