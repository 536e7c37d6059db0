"""The source of the CUDA probe's counts. It takes turns by its own timer; a look takes the result of the last turn.

A turn reads the maps and drains the ring. Every few turns it looks for new programs first. No look waits for a turn.
"""

import asyncio
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from exporter import log
from exporter.errors import SourceError, TimedOut, Unavailable
from exporter.sources.single_flight import Worker
from exporter.sources.source import AskedSource, Attempt, Bound, Bounds, OnHealth

if TYPE_CHECKING:
    from collections.abc import Callable

    from exporter.probe.probe import Probe, ProbeAnswer

T = TypeVar("T")
NAME = "probe"
TURN_SECONDS = 1.0
# a reading takes a millisecond; attaching to the files of 64 containers that start at once takes some seconds
DEADLINE_SECONDS = 30.0
# the pause after a failure: a missing file or right seldom comes
PAUSE_SECONDS = 60.0


class CudaProbe(AskedSource):
    """The probe on its worker thread.

    Attributes:
        turn: the last turn; None before the first, and while the probe fails. A process that has ended is in one more.
        opened: how often the probe was loaded into the kernel. Each load counts from 0.
        followers: the functions that are called with each turn.
    """

    patience_seconds = 0.0

    def __init__(
        self, *, proc: str, interval_seconds: float, max_programs: int, any_kernel: bool, on_health: OnHealth
    ) -> None:
        """`proc` is the folder /proc. Every `interval_seconds` the probe looks for programs."""
        super().__init__(NAME, on_health)
        self.turn: ProbeAnswer | None = None
        self.opened = 0
        self.bounds: Bounds = {"probed_programs": Bound(max_programs, lambda: self.turn.programs if self.turn else 0)}
        self._open: Callable[[], Probe] = lambda: _open(Path(proc), max_programs, any_kernel=any_kernel)
        self._interval_seconds = interval_seconds
        self._worker: Worker[Any] = Worker(NAME)
        self._probe: Probe | None = None  # only the worker sets it
        self._closed = False
        self._scanned_at = -float("inf")
        self._turning: asyncio.Task[None] | None = None
        self.followers: list[Callable[[ProbeAnswer], None]] = []

    def begin(self) -> Attempt | None:
        """Begin the turns. No caller waits for them."""
        if self._turning is None:
            self._turning = asyncio.create_task(self._turn_for_ever())
        return None

    async def close(self) -> None:
        """Detach everything at once, even while the worker works. If this process ends before, the kernel detaches."""
        if self._turning is not None:
            self._turning.cancel()
        self._closed = True
        if (probe := self._probe) is not None:
            threading.Thread(target=probe.detach, name="detach", daemon=True).start()
        self._worker.close(self._give_up)

    async def _turn_for_ever(self) -> None:
        while True:
            began = time.monotonic()
            pause = TURN_SECONDS if await self._take_turn(began) else PAUSE_SECONDS
            await asyncio.sleep(max(0.0, began + pause - time.monotonic()))

    async def _take_turn(self, began: float) -> bool:
        """Take a turn. Returns whether it succeeded, with its followers. After any failure everything is detached."""
        error: SourceError | None = None
        try:
            self.turn = turn = await self._on_worker(self._work, began)
            try:
                for hears in tuple(self.followers):
                    hears(turn)
            except Exception:  # if a follower fails, the turn has failed
                await self._on_worker(self._give_up, began)
                raise
        except SourceError as why:
            error = why
        except Exception as fault:  # noqa: BLE001 - it may cost the probe, and nothing else
            log.error("the CUDA probe was detached by a fault of the exporter", fault)
            error = _FAULT
        self._note(error, began)
        return error is None

    async def _on_worker(self, work: "Callable[[], T]", began: float) -> T:
        """The result of the work, however long it takes, since the probe does one thing at a time."""
        done: asyncio.Future[T | Exception] = asyncio.get_running_loop().create_future()

        def end(result: T | Exception) -> None:
            if not done.done():
                done.set_result(result)

        self._worker.begin(work, end)
        await asyncio.wait((done,), timeout=DEADLINE_SECONDS)
        if not done.done():
            self._note(_LATE, began)
        result = await done
        if isinstance(result, Exception):
            raise result
        return result

    def _note(self, error: SourceError | None, began: float) -> None:
        if error is not None:
            self.turn = None
        self._attempts.note(error, took_seconds=time.monotonic() - began, now_seconds=time.time())

    # --- on the worker's thread

    def _work(self) -> "ProbeAnswer":
        """A turn: a scan if one is due, and a read. Any failure is raised, and detaches the probe."""
        if self._closed:
            raise _CLOSED
        try:
            if self._probe is None:
                self._probe = self._open()
                self.opened += 1
                self._scanned_at = -float("inf")
            # the nearest turn scans: if turns come a little early, a scan would otherwise wait for the turn after
            is_due = time.monotonic() - self._scanned_at >= self._interval_seconds - TURN_SECONDS / 2
            if is_due and not self._closed:
                self._scanned_at = time.monotonic()
                self._probe.scan()
            return self._probe.read()
        except Exception:
            self._give_up()
            raise

    def _give_up(self) -> None:
        probe = self._probe
        self._probe = None
        if probe is not None:
            probe.close()


def _open(proc: Path, most_programs: int, *, any_kernel: bool) -> "Probe":
    # libbpf, ctypes and the rest are needed only if the probe is on, and only on the worker's thread
    from exporter.probe.probe import Probe  # noqa: PLC0415

    return Probe.open(proc=proc, most_programs=most_programs, any_kernel=any_kernel)


_LATE = TimedOut(
    f"the CUDA probe has not come back for {DEADLINE_SECONDS:.0f} s",
    remedy="it goes on when it does; see the kernel's log, and set --probe.mode off where it stays so",
)
_CLOSED = Unavailable("missing", "the CUDA probe is closed", remedy="start the exporter again")
_FAULT = Unavailable(
    "refused",
    "the CUDA probe was detached by a fault of the exporter",
    remedy="report it with the lines of the log; meanwhile set --probe.mode off",
)
