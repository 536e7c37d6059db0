"""The source of the kernel's log, /dev/kmsg: it reads a little at a time, from where the last process ended.

Each read returns a record (Linux' ABI/testing/dev-kmsg). EPIPE: the kernel has overwritten records that were not read;
the numbers of records tell how many. A process that opens the log needs CAP_SYSLOG if kernel.dmesg_restrict is 1. In a
container the cgroup's rules must allow the device, too, as they do for privileged containers.
"""

import asyncio
import errno
import os
import time
from collections.abc import Awaitable, Callable, Iterator

from exporter.errors import Malformed, SourceError, Unavailable
from exporter.model.kernel import KernelEvent
from exporter.model.snapshot import KERNEL_LOG
from exporter.ownership.kernel_events import MOST_EVENTS, KernelEvents
from exporter.sources.hearing import LISTENER
from exporter.sources.kernel_log.kernel_lines import EventReader, may_be_event, read_record
from exporter.sources.polled import Watch
from exporter.sources.source import Bound, OnHealth
from exporter.telemetry import Telemetry

DEVICE = "/dev/kmsg"
# The longest record has 8 KiB. A turn of the event loop reads at most BYTES_A_TURN, some 100 records, and the next turn
# comes after a pause: of a flood it reads some 10,000 records a second, and counts those that the kernel overwrites.
MOST_BYTES = 8 * 1024
BYTES_A_TURN = 16 * 1024
TURN_SECONDS = 0.01
# A pod may be gone a moment after its GPU failed. So an event starts a look at once, and another one after this time.
LOOK_SECONDS = 1.0
PATIENCE_OF_A_LOOK_SECONDS = 5.0
# counts of records. lost: the kernel overwrote it before it was read. dropped: too many events waited for their holders
RECORDS = ("read", "lost", "dropped")


class KernelLog(Watch):
    """Reads records, and hands errors of GPUs and NVSwitches to `events`.

    `sequence` is the number of the last record that was read. None: no process has read any, and all records that are
    in the log when it is opened are old. `look` has the node looked at, to know who holds the GPUs.
    """

    def __init__(self, *, path: str, events: KernelEvents, telemetry: Telemetry, on_health: OnHealth) -> None:
        super().__init__(KERNEL_LOG, on_health, longest_pause_seconds=60.0)
        telemetry.kernel_records.update(dict.fromkeys(RECORDS, 0))
        self.events = events
        self.sequence: int | None = None
        self.look: Callable[[float], Awaitable[object]] | None = None
        self.bounds = {"kernel_events": Bound(MOST_EVENTS, lambda: len(events.newest))}
        self._path = path
        self._telemetry = telemetry
        self._listener = LISTENER.get()
        self._reader = EventReader()
        self._part = b""
        self._is_new = False  # whether the next records are newer than the opening of the log
        self._hears_old = False
        self._looking: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """End the reading, and the looks that it asked for."""
        if self._looking is not None:
            self._looking.cancel()
        await super().close()

    async def _attend(self) -> None:
        """Read the log until reading fails. The source is in sync once it has reached the log's end."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as why:
            raise _refused(self._path, why) from why
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        self._part = b""
        self._is_new = False
        self._hears_old = self.sequence is not None
        try:
            loop.add_reader(descriptor, readable.set)
            while True:
                readable.clear()
                if self._turn(descriptor):
                    await asyncio.sleep(TURN_SECONDS)
                    continue
                if not self._is_new:
                    self._is_new = True
                    self.in_sync()
                await readable.wait()
        finally:
            loop.remove_reader(descriptor)
            os.close(descriptor)

    def _turn(self, descriptor: int) -> bool:
        """Read some records. Returns whether there may be more."""
        left = BYTES_A_TURN
        while left > 0:
            try:
                chunk = os.read(descriptor, MOST_BYTES)
            except BlockingIOError:
                return False
            except OSError as why:
                if why.errno not in (errno.EPIPE, errno.EINVAL):  # overwritten or too long: the next number shows it
                    raise Unavailable(
                        "unreachable", f"the kernel's log cannot be read: {self._path}: {why.strerror}", remedy=_RESTART
                    ) from why
                left -= MOST_BYTES
                continue
            if not chunk:
                raise Malformed("truncated", f"the kernel's log has ended: {self._path}", remedy=_RESTART)
            left -= max(len(chunk), BYTES_A_TURN // 128)
            for line in self._lines(chunk):
                self._take(line)
        return True

    def _lines(self, chunk: bytes) -> Iterator[bytes]:
        """The first lines of the records in a chunk. A pipe may end a chunk within a line, which waits for its rest."""
        *lines, self._part = (self._part + chunk).split(b"\n")
        self._part = self._part[-MOST_BYTES:]
        return (line for line in lines if not line.startswith(b" "))

    def _take(self, line: bytes) -> None:
        """Count a new record and report its event. An event from before the exporter listened is only recalled."""
        record = read_record(line)
        if record is None:
            return
        is_known = self.sequence is not None and record.sequence <= self.sequence
        if not is_known:
            lost = record.sequence - self.sequence - 1 if self.sequence is not None else 0
            self.sequence = record.sequence
            self._telemetry.kernel_records.update(read=1, lost=lost)
        event = None
        if may_be_event(line):
            event = self._reader.read(record)
            if self._listener is not None:
                self._listener.logged(line)
        if event is not None and not is_known and (self._is_new or self._hears_old):
            self._hear(event)
        elif event is not None:
            at_seconds = time.time() - max(0.0, time.monotonic() - event.booted_us / 1e6)
            self.events.recall(event, self._reader.uuids, at_seconds)

    def _hear(self, event: KernelEvent) -> None:
        if self.events.is_full:
            self._telemetry.kernel_records["dropped"] += 1
            return
        # the kernel's clock drifts by seconds a day, so our clock dates an event that comes now
        age = 0.0 if self._is_new else max(0.0, time.monotonic() - event.booted_us / 1e6)
        is_another = self.events.hear(
            event, self._reader.uuids, at_seconds=time.time() - age, heard_at=time.monotonic(), is_new=self._is_new
        )
        if is_another and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        """Have the node looked at until it is clear who held the GPUs of all events."""
        while self.look is not None and self.events.is_waiting:
            await self.look(PATIENCE_OF_A_LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)


_RESTART = "nothing: it is opened again"


def _refused(path: str, why: OSError) -> SourceError:
    if why.errno == errno.ENOENT:
        return Unavailable(
            "missing",
            f"the kernel's log is not there: there is no {path}",
            remedy="mount the node's /dev/kmsg into the exporter's container (docs/install.md says how), or turn"
            " --kernel-log.mode off",
        )
    return Unavailable(
        "permission",
        f"the kernel's log cannot be opened: {path}: {why.strerror}",
        remedy="let the exporter's container be privileged, or run the exporter with CAP_SYSLOG outside of containers;"
        " kernel.dmesg_restrict and the cgroup's rules for devices ask for it",
    )
