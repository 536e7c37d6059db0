"""The exporters of all nodes: each is asked every few seconds, and its last answer is kept.

All exporters are asked at once, each with its own deadline. An exporter that does not answer delays no other.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial

from exporter import log
from exporter.cluster.exporters.known_nodes import KnownExporter, KnownExporters
from exporter.cluster.exporters.node_answer import read_answer
from exporter.config.cluster_settings import ClusterSettings
from exporter.config.http_file import HttpConfig
from exporter.errors import SourceError, Trouble
from exporter.model.cluster_view import ClusterView, NodeEvent
from exporter.model.node_answers import EVENTS_HEADER
from exporter.pulse import end_tasks
from exporter.sources.cluster_source import Places
from exporter.sources.exporters.asking import ExporterClient, check_owners
from exporter.sources.exporters.exporter_events import PATH as EVENTS_PATH
from exporter.sources.exporters.exporter_events import read_events
from exporter.sources.long_work import in_slices
from exporter.sources.source import AskedSource, Attempt, Bound, Bounds, Clock, OnHealth

NAME = "exporters"
# This many questions are begun at a time; more would only share the same processor. If an exporter has not answered
# after the moment, the next question is begun, while the first one still waits.
AT_ONCE = 16
MOMENT_SECONDS = 0.02
# After this time without any answer, a round does not wait for the remaining exporters.
QUIET_SECONDS = 0.25
MOST_IN_FLIGHT_BYTES = 32 * 1024 * 1024


class Exporters(AskedSource):
    """The node exporters of a cluster (a ClusterSource).

    The source is up if any exporter answered. Its trouble says how many did not.
    """

    def __init__(
        self,
        *,
        places: Places,
        cluster: ClusterSettings,
        http: HttpConfig,
        on_health: OnHealth,
        clock: Clock = time.monotonic,
        wall_clock: Clock = time.time,
    ) -> None:
        """Make the source, which begins and closes `places`, too. `wall_clock` counts seconds since 1970."""
        super().__init__(NAME, on_health)
        self.places = places
        self._exporters = KnownExporters(max_age_seconds=cluster.max_age_seconds, looked_for=places.looked_for)
        self._client = ExporterClient(
            timeout_seconds=cluster.timeout_seconds,
            max_bytes=cluster.max_bytes,
            http=http,
            most_in_flight_bytes=MOST_IN_FLIGHT_BYTES,
        )
        self._clock = clock
        self._wall_clock = wall_clock
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._asks: dict[KnownExporter, asyncio.Task[None]] = {}
        self._ended_asks = 0
        self._round: asyncio.Task[None] | None = None
        self._settling: asyncio.Task[None] | None = None
        self.bounds: Bounds = {
            **places.bounds,
            **self._exporters.bounds,
            "answers_in_flight_bytes": Bound(MOST_IN_FLIGHT_BYTES, lambda: self._client.in_flight.used),
        }
        if places.places is not None:
            self._exporters.follow(places.places, clock())
        places.follow(self._follow)

    @property
    def view(self) -> ClusterView:
        """The cluster as it is known now: the same object as long as only ages have changed."""
        return self._exporters.view(self._clock(), self._wall_clock(), self._why_unknown())

    def begin(self) -> Attempt:
        """Ask every exporter that is not being asked. The task ends when all that answer soon have answered."""
        attempt = self.places.begin()
        self._follow()
        # exporters that failed last time are asked last
        self._ask(sorted(self._exporters.entries.values(), key=lambda entry: entry.failure is not None))
        if self._round is None or self._round.done():
            self._round = asyncio.create_task(self._note_round(attempt))
        if self._settling is None or self._settling.done():
            self._settling = asyncio.create_task(self._settle(attempt))
        return self._settling

    async def close(self) -> None:
        """End requests in flight, and the connections."""
        await end_tasks(self._round, self._settling, *self._asks.values())
        await self.places.close()
        await self._client.close()

    def _why_unknown(self) -> Trouble | None:
        if self.places.places is not None:
            return None
        message = f"it is not known yet which nodes there are: {self.places.looked_for} has not been read"
        unread = Trouble("missing", message, "it is being asked for; look again in some seconds")
        return self.places.health.trouble or unread

    def _follow(self) -> None:
        """Ask new exporters now, without waiting for the next round."""
        if self.places.places is None:
            return
        moved = self._exporters.follow(self.places.places, self._clock())
        for entry in moved:
            if ask := self._asks.pop(entry, None):
                ask.cancel()  # it asks at the exporter's old place
        self._ask(moved)

    def _ask(self, entries: Iterable[KnownExporter]) -> None:
        for entry in entries:
            if entry not in self._asks and not entry.has_left:
                ask = self._asks[entry] = asyncio.create_task(self._attend(entry))
                ask.add_done_callback(partial(self._ended, entry))

    def _ended(self, entry: KnownExporter, ask: asyncio.Task[None]) -> None:
        self._ended_asks += 1
        if self._asks.get(entry) is ask:
            del self._asks[entry]

    async def _attend(self, entry: KnownExporter) -> None:
        """Ask an exporter once, and keep its answer or failure. Its events are read if there are new ones."""
        try:
            async with _AskingPlace(self._at_once):
                headers: dict[str, str] = {}
                body = await self._client.ask(entry.place.url, on_headers=headers.update)
                check_owners(headers)
                answer = await in_slices(read_answer(body, entry.node))
        except SourceError as error:
            self._exporters.failed(entry, error.trouble)
        except Exception as error:  # noqa: BLE001 - a fault of this program here must not cost the other nodes
            log.error("a fault of the exporter spoiled an answer", error, node=entry.key)
            message = f"a fault of this program itself: {error!r}"
            remedy = "please report it, with the trace that is in its log"
            self._exporters.failed(entry, Trouble("garbage", message, remedy))
        else:
            self._exporters.answered(entry, answer, self._clock(), self._wall_clock())
            newest = headers.get(EVENTS_HEADER, "")[:99]
            if newest != entry.newest_event or not entry.has_events:
                await self._hear(entry, newest)

    async def _hear(self, entry: KnownExporter, newest: str) -> None:
        """Ask for the events of a node. This happens only if the node has new ones."""
        events: Sequence[NodeEvent] | None = None
        try:
            body = await self._client.ask(entry.place.url, EVENTS_PATH) if newest else b"[]"
            events = await in_slices(read_events(body, entry.node or ""))
        except SourceError as error:
            if entry.has_events:
                log.warning("a node's events cannot be read", node=entry.key, error=str(error.trouble))
        self._exporters.heard(entry, newest, events)

    async def _settle(self, attempt: Attempt | None) -> None:
        """Wait until no request is in flight, or until none has ended for a while and none waits for its turn."""
        if attempt is not None:
            await asyncio.wait({attempt})
        ended = -1
        while self._asks and (ended != self._ended_asks or self._at_once.locked()):
            ended = self._ended_asks
            await asyncio.wait(set(self._asks.values()), timeout=QUIET_SECONDS)

    async def _note_round(self, attempt: Attempt | None) -> None:
        """Wait until all exporters that are asked in this round have answered or failed, and note the result."""
        started = time.monotonic()
        if attempt is not None:
            await asyncio.wait({attempt})
        if asks := set(self._asks.values()):
            await asyncio.wait(asks)
        took = time.monotonic() - started
        error, odd = self._exporters.verdict()
        self._attempts.note(error, took_seconds=took, now_seconds=self._wall_clock(), odd=odd)


class _AskingPlace:
    """One of the AT_ONCE places for beginning a question. It is given back after a moment, or at the question's end."""

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
