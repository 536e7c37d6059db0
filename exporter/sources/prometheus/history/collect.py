"""All that a report is made of, from a Prometheus server: piece by piece, in the order of time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from exporter.errors import Unavailable
from exporter.report.report import Collected, Moment
from exporter.report.span import Span
from exporter.sources.prometheus.history.accounts import AccountsReader
from exporter.sources.prometheus.history.api import PrometheusApi, TooMuch
from exporter.sources.prometheus.history.facts import FactsReader

OnProgress = Callable[[int, int], None]


async def collect(
    api: PrometheusApi, span: Span, *, matchers: Sequence[str], wanted: frozenset[str], on_progress: OnProgress
) -> Collected:
    """The accounts of the span. `on_progress` hears how many pieces of how many are done.

    Raises:
        SourceError: the server does not answer, or not with what Prometheus answers.
    """
    accounts = AccountsReader(api=api, matchers=matchers, wanted=wanted)
    others = FactsReader(api=api, matchers=matchers)
    moments = []
    pieces = span.pieces()
    on_progress(0, len(pieces))
    try:
        await accounts.begin(span)
    except TooMuch as error:
        raise Unavailable(
            "http_status",
            f"the server does not answer a small query: {error}",
            remedy="is it overloaded? Give it more time with --timeout, or ask for less with --match",
        ) from error
    for number, piece in enumerate(pieces, 1):
        await asyncio.gather(accounts.read(piece), others.read(piece))
        moments.append(Moment(piece, accounts.growth.take_lately()))
        on_progress(number, len(pieces))
    await others.end(span)
    return _collected(span, accounts, others, moments)


def _collected(span: Span, accounts: AccountsReader, others: FactsReader, moments: Sequence[Moment]) -> Collected:
    growth = accounts.growth
    facts = replace(
        others.facts,
        odd=accounts.odd,
        has_renamed=accounts.has_renamed,
        warnings=tuple(accounts.warnings),
        restarts=growth.restarts,
        began_ms=None if growth.began_seconds is None else int(growth.began_seconds * 1000),
    )
    return Collected(span=span, grown=growth.grown, labels=growth.labels, facts=facts, moments=tuple(moments))
