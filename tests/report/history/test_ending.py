"""A report that is cancelled asks no more, whatever a query says in that moment."""

import asyncio
from collections.abc import Sequence

import pytest

from exporter.report.history.collect import AccountsReader
from exporter.report.history.prometheus_api import AnsweredSeries, RangeAnswer, TooMuch
from exporter.report.span import Span
from tests.support.waiting import until

PIECE = Span(0, 3_600_000)


class RefusingServer:
    """It keeps its first questions, and then refuses one of them as too much; what comes later it answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.refuses = asyncio.Event()

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:  # noqa: ARG002 - as a server has it
        self.asked.append(expression)
        if len(self.asked) == 1:
            await self.refuses.wait()
            raise TooMuch("too many samples")
        if not self.refuses.is_set():
            await asyncio.Event().wait()
        series: Sequence[AnsweredSeries] = ()
        return RangeAnswer(series=series)


# issue 22, line 18
@pytest.mark.parametrize("steps", range(4))
async def test_a_cancelled_reader_asks_no_more_even_if_a_query_fails_meanwhile(steps: int) -> None:
    server = RefusingServer()
    reading = asyncio.create_task(AccountsReader(api=server, matchers=(), wanted=frozenset()).read(PIECE))
    await until(lambda: len(server.asked) == 6)
    server.refuses.set()
    for _ in range(steps):
        await asyncio.sleep(0)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert len(server.asked) == 6
