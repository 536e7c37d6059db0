"""The exporters of all nodes: each is asked every few seconds, and the last answer of each is kept.

All are asked at once, each with a deadline of its own. One that does not answer delays nobody: an ask has the event
loop's attention, of which there is little, for a moment only, and then waits aside.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from exporter.config.http_file import HttpConfig
from exporter.errors import SourceError, Trouble
from exporter.log import log
from exporter.model.cluster import ClusterView
from exporter.model.snapshot import Health
from exporter.sources.any_places import Places
from exporter.sources.exporters.answer import read_answer
from exporter.sources.exporters.asking import Asking
from exporter.sources.exporters.known import Book, Known
from exporter.sources.slices import in_slices
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth

NAME = "exporters"
# So many are begun at a time: more would only share the same processor. One that has not answered after the moment
# makes room for the next, and waits on.
AT_ONCE = 16
MOMENT_SECONDS = 0.02
# Who has not answered when nobody has for so long is not waited for.
QUIET_SECONDS = 0.25
MOST_IN_FLIGHT_BYTES = 32 * 1024 * 1024


class Exporters:
    """The node exporters of a cluster (a ClusterSource)."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self,
        *,
        places: Places,
        timeout_seconds: float,
        max_age_seconds: float,
        max_bytes: int,
        http: HttpConfig,
        on_health: OnHealth,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`timeout_seconds` is an exporter's time for an answer, `max_bytes` its length after decompression.

        `places` is this source's from now on: begun and closed with it. `clock` counts ages, in seconds;
        `wall_clock` says the time, in seconds since 1970.
        """
        self.places = places
        self._book = Book(max_age_seconds=max_age_seconds, looked_for=places.looked_for)
        self._asking = Asking(
            timeout_seconds=timeout_seconds, max_bytes=max_bytes, http=http, most_in_flight_bytes=MOST_IN_FLIGHT_BYTES
        )
        self._attempts = Attempts(NAME, on_health)
        self._clock, self._wall_clock = clock, wall_clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asks: dict[Known, asyncio.Task[None]] = {}
        self._ended_asks = 0
        self._round: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self.bounds: Mapping[str, Bound] = {
            **places.bounds,
            **self._book.bounds,
            "answers_in_flight_bytes": Bound(MOST_IN_FLIGHT_BYTES, lambda: self._asking.in_flight.used),
        }
        if places.places is not None:
            self._book.follow(places.places, clock())
        places.follow(self._follow)

    @property
    def health(self) -> Health:
        """How the last round went: up, where an exporter answered. Its trouble says how many did not."""
        return self._attempts.health

    @property
    def view(self) -> ClusterView:
        """What is known now; the same object as long as nothing changed but ages."""
        return self._book.view(self._clock(), self._wall_clock(), self._why_unknown())

    def begin(self) -> Attempt:
        """Ask every exporter but those that are being asked.

        The task ends when all that answer soon have done so: one that stalls is not waited for.
        """
        found = self.places.begin()
        self._follow()
        # those that failed last time come last
        self._ask(sorted(self._book.entries.values(), key=lambda entry: entry.failure is not None))
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._note_round(found))
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle(found))
        return self._settling

    async def close(self) -> None:
        """End what is in flight, and the connections."""
        for task in (self._round, self._settling, *self._asks.values()):
            if task is not None:
                task.cancel()
                with suppress(asyncio.CancelledError, Exception):
                    await task
        await self.places.close()
        await self._asking.close()

    def _why_unknown(self) -> Trouble | None:
        if self.places.places is not None:
            return None
        return self.places.health.trouble or Trouble(
            "missing",
            f"it is not known yet which nodes there are: {self.places.looked_for} has not been read",
            "it is being asked for; look again in some seconds",
        )

    def _follow(self) -> None:
        """Ask whoever is new now, and not only in the next round."""
        if self.places.places is None:
            return
        moved = self._book.follow(self.places.places, self._clock())
        for entry in moved:
            if ask := self._asks.pop(entry, None):
                ask.cancel()  # it asks where the exporter was
        self._ask(moved)

    def _ask(self, entries: Iterable[Known]) -> None:
        for entry in entries:
            if entry not in self._asks and not entry.has_left:
                ask = self._asks[entry] = asyncio.create_task(self._attend(entry))
                ask.add_done_callback(partial(self._ended, entry))

    def _ended(self, entry: Known, ask: asyncio.Task[None]) -> None:
        self._ended_asks += 1
        if self._asks.get(entry) is ask:
            del self._asks[entry]

    async def _attend(self, entry: Known) -> None:
        """Ask one of them, and note what came of it."""
        try:
            async with _Turn(self._at_once):
                body = await self._asking.ask(entry.place.url)
                answer = await in_slices(read_answer(body, entry.node))
        except SourceError as error:
            self._book.failed(entry, error.trouble)
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the other nodes
            log(logging.ERROR, "an answer failed by a fault of the exporter", error, node=entry.key)
            self._book.failed(entry, _fault(error))
        else:
            self._book.answered(entry, answer, self._clock(), self._wall_clock())

    async def _settle(self, found: Attempt | None) -> None:
        """Until nobody is asked any more, or nobody has answered for a while and nobody waits for a turn."""
        if found is not None:
            await asyncio.wait({found})
        ended = -1
        while self._asks and (ended != self._ended_asks or self._at_once.locked()):
            ended = self._ended_asks
            await asyncio.wait(set(self._asks.values()), timeout=QUIET_SECONDS)

    async def _note_round(self, found: Attempt | None) -> None:
        """Until those that are asked now, or once the places are known, have answered or failed."""
        started = time.monotonic()
        if found is not None:
            await asyncio.wait({found})
        if asks := set(self._asks.values()):
            await asyncio.wait(asks)
        took = time.monotonic() - started
        error, odd = self._book.verdict()
        self._attempts.note(error, took_seconds=took, now_seconds=self._wall_clock(), odd=odd)


class _Turn:
    """A place among those that are begun at a time, which is given back after a moment or at the end."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> None:
        await self._places.acquire()
        self._timer = asyncio.get_running_loop().call_later(MOMENT_SECONDS, self._give_back)

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._give_back()

    def _give_back(self) -> None:
        self._timer = None
        self._places.release()


def _fault(error: Exception) -> Trouble:
    return Trouble(
        "garbage", f"a fault of this program itself: {error!r}", "please report it, with the trace that is in its log"
    )
