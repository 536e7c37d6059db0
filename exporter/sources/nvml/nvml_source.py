"""The source NVML. A look begins a reading and takes the last reading, so that it never waits for the driver.

Only the first look waits a little, so that the first page has the MIG instances. In dcgm-exporter's place (--dcgm.mode
off) every reading also makes the page of GPU samples, on NVML's thread. A scrape gets the page of the reading that
runs, or that ended a moment ago. While NVML hangs or fails, this source fails: it never shows old samples as new.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from exporter.errors import Malformed, SourceError, TimedOut, Unavailable
from exporter.exposition.check import why_too_large
from exporter.model.devices import Inventory
from exporter.model.driver import DriverReading
from exporter.model.pages import Page
from exporter.model.snapshot import Health
from exporter.sources.nvml import library
from exporter.sources.nvml.library import IN_A_POD, MOST_GPUS, MOST_PROCESSES, Failed, Library, NotThere, source_error
from exporter.sources.pause import Pause
from exporter.sources.single_flight import SingleFlight, Worker, wake
from exporter.sources.source import (
    NO_BOUNDS,
    PATIENCE_SECONDS,
    AskedSource,
    Attempt,
    Bound,
    Bounds,
    Clock,
    NoSource,
    OnHealth,
    absent,
)

if TYPE_CHECKING:
    from exporter.sources.nvml.nvml_reader import NvmlReader

NAME = "nvml"
_LOST_GPU = "a GPU may have fallen off the bus: look at the kernel's log (dmesg | grep -e NVRM -e Xid)"
AGAIN_SECONDS = 1.0
# A reading takes milliseconds. A call about a GPU that is just being lost takes 10 s or more.
DEADLINE_SECONDS = 3.0
# The pause after a failure of the library, doubled with every further failure. A missing library seldom appears.
LONGEST_PAUSE_SECONDS = 60.0
PAUSE = Pause(1.0, LONGEST_PAUSE_SECONDS)


class NoNvml(NoSource):
    """The source in place of NVML if nobody asks NVML."""

    inventory = Inventory()
    reading: DriverReading | None = None

    def __init__(self) -> None:
        super().__init__(NAME, absent("NVML is not asked: --nvml.mode is off", "set it to auto"), _bounds(lambda: None))
        self.followers: list[Callable[[DriverReading], None]] = []


class Nvml(AskedSource):
    """NVML on its worker thread, read every second at most, and as often as somebody looks.

    `inventory` is the last inventory that was read; the same object as long as nothing changed. `reading` is the last
    reading; its processes are None while NVML fails or does not come back. `page` is the page of that reading, if the
    settings ask for a page; b"" before the first. If the library is missing, and the user did not ask for it, the
    source is absent. `failure` is the error of the last reading. At a reload, the next of the `followers` comes before
    the last one goes.
    """

    def __init__(
        self, *, is_missed: bool, on_health: OnHealth, page_host: str = "", clock: Clock = time.monotonic
    ) -> None:
        """`is_missed`: a missing library is a failure. With `page_host`, the node's name, each reading makes a page."""
        super().__init__(NAME, on_health)
        self.inventory = Inventory()
        self.reading: DriverReading | None = None
        self.page = b""
        self.failure: SourceError | None = None
        self.bounds = _bounds(lambda: self.reading)
        self._page_host = page_host
        self._waiting: list[asyncio.Future[None]] = []
        self._is_missed = is_missed
        self._clock = clock
        self._library = Library(library.NAME)
        self._reader: NvmlReader | None = None
        self._worker: Worker[DriverReading] = Worker(NAME, clock)
        self._due = -float("inf")
        self._began = 0.0
        self._failures = 0
        self._is_late = self._is_closed = False
        self._heard = asyncio.Event()
        self._first: asyncio.Task[object] | None = None
        self.followers: list[Callable[[DriverReading], None]] = []

    def begin(self) -> Attempt | None:
        """Begin a reading if one is due and none runs. Only the first reading ever is worth waiting for."""
        now = self._clock()
        busy_seconds = self._worker.busy_seconds
        if busy_seconds is None and now >= self._due:
            self._began = now
            self._is_late = False
            self._worker.begin(self._read, self._done)
        elif busy_seconds is not None and busy_seconds > DEADLINE_SECONDS and not self._is_late:
            self.give_up()
        if self._heard.is_set() or now - self._began > PATIENCE_SECONDS:
            return None  # it has hung from the start, so no look waits for it again
        if self._first is None:
            self._first = asyncio.create_task(self._heard.wait())
        return self._first

    def give_up(self) -> None:
        """Note that the present reading has taken too long. Until it comes back, NVML counts as failed."""
        if self._worker.busy_seconds is not None and not self._is_late:
            self._is_late = True
            late = f"{self._library.calling} has not come back for more than {DEADLINE_SECONDS:g} s"
            remedy = f"{_LOST_GPU} and at nvidia-smi on the node"
            self._fail(TimedOut(f"{late}; what NVML said last counts", remedy=remedy))
            self._wake()

    def ended(self) -> "asyncio.Future[None]":
        """A future that is done once the present reading has ended, or has taken too long; at once if none runs."""
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(ended)
        if self._worker.busy_seconds is None or self._is_late:
            self._wake()
        return ended

    async def close(self) -> None:
        """Let go of the library once the worker is free, and wait for nobody."""
        self._is_closed = True
        if self._first is not None:
            self._first.cancel()
        self._worker.close(self._let_go)

    def _read(self) -> DriverReading:
        if self._reader is None:
            # a node without the library only pays for looking for it
            self._library.open()
            from exporter.sources.nvml.nvml_reader import NvmlReader  # noqa: PLC0415

            pages = None
            if self._page_host:
                from exporter.sources.nvml.nvml_page import PageMaker  # noqa: PLC0415 - only this setting needs it

                pages = PageMaker(self._library, self._page_host)
            self._reader = NvmlReader(self._library, pages)
        return self._reader.read(self._clock())

    def _let_go(self) -> None:
        (self._reader or self._library).close()

    def _done(self, result: DriverReading | Exception) -> None:
        """Take the end of a reading on the worker thread, plan the next one, and wake those who wait."""
        if self._is_closed:
            return
        now = self._clock()
        self._heard.set()
        self._wake()
        if isinstance(result, DriverReading):
            self._absent = None
            self._failures = 0
            self._due = self._began + AGAIN_SECONDS
            self.reading = result
            self.inventory = result.inventory
            self._take_page()
            if self.reading is result:
                for hears in tuple(self.followers):
                    hears(result)
        elif isinstance(result, NotThere):
            self._due = now + LONGEST_PAUSE_SECONDS
            says = f"there is no {library.NAME}"
            if self._is_missed:
                self._fail(Unavailable("missing", f"{says}: {result}", remedy=IN_A_POD))
            else:
                self._absent = absent(says, IN_A_POD)
        elif isinstance(result, Failed):
            self._failures += 1
            self._due = now + PAUSE.after(self._failures)
            self._fail(source_error(result))
        else:
            self._due = now + LONGEST_PAUSE_SECONDS
            says = f"NVML's answer could not be read: {type(result).__name__}: {result}"
            self._fail(Unavailable("unreachable", says, remedy="report this; --nvml.mode off leaves NVML alone"))

    def _take_page(self) -> None:
        """Take the page of the reading that has come. If a page is asked for, a page without a sample is a failure."""
        self.page = self._reader.page if self._reader else b""
        too_large = why_too_large(self.page)
        if too_large:
            self._fail(Malformed("oversize", f"NVML's page has {too_large}", remedy="report this"))
        elif self._page_host and not self.page:
            odd = self._reader.trouble if self._reader else None
            says = odd.message if odd else "NVML knows no GPU here"
            self._fail(Malformed("no_samples", says, remedy=odd.remedy if odd else IN_A_POD))
        else:
            self.failure = None
            self._note(None)

    def _wake(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for future in waiting:
            wake(future)

    def _fail(self, error: SourceError) -> None:
        self._absent = None
        self.failure = error
        if self.reading is not None and self.reading.processes is not None:
            self.reading = replace(self.reading, processes=None)
        self._note(error)

    def _note(self, error: SourceError | None) -> None:
        took = self._clock() - self._began
        odd = self._reader.trouble if self._reader else None
        self._attempts.note(error, took_seconds=took, now_seconds=time.time(), odd=odd)


def _bounds(reading: Callable[[], DriverReading | None]) -> Bounds:
    return {
        "nvml_gpus": Bound(MOST_GPUS, lambda: len(last.inventory.gpus) if (last := reading()) else 0),
        "gpu_processes": Bound(MOST_PROCESSES, lambda: len(last.processes or ()) if (last := reading()) else 0),
    }


class NvmlPage:
    """The page of the last reading of `nvml`, which makes pages."""

    name = NAME
    is_kept = False
    patience_seconds = None
    bounds = NO_BOUNDS
    if_slow: ClassVar[str] = _LOST_GPU

    def __init__(self, *, nvml: Nvml, on_health: OnHealth) -> None:  # noqa: ARG002 - NVML tells its health itself
        self.page: Page | None = None
        self._nvml = nvml
        self._of: DriverReading | None = None
        self._flight = SingleFlight(self._read, DEADLINE_SECONDS)
        # a failed wait raises a SourceError: what NVML failed by, or that it does not come back
        self.begin = self._flight.begin
        self.wait = self._flight.wait
        self.close = self._flight.close

    @property
    def health(self) -> Health:
        """NVML's own health, since it is the same source."""
        return self._nvml.health

    async def _read(self) -> Page:
        """The page of the present reading, begun now if none runs. Raises SourceError: it failed, or takes too long."""
        self._nvml.begin()
        try:
            await self._nvml.ended()
        except asyncio.CancelledError:
            if not self._flight.timed_out:
                raise
            self._nvml.give_up()
        failure = self._nvml.failure
        reading = self._nvml.reading
        if failure is not None:
            raise failure.with_traceback(None)
        assert reading is not None, "a reading that ended came or failed"  # noqa: S101 - a fault of this program
        if self.page is None or self._of is not reading:
            self._of = reading
            ago = time.monotonic() - reading.read_at
            read_at = time.time() - ago
            self.page = Page(source=NAME, body=self._nvml.page, read_at_seconds=read_at, moment=reading.read_at)
        return self.page
