"""The kernel's log through a FIFO, which is read like /dev/kmsg but for its chunks; and the machine's own once."""

import asyncio
import fcntl
import gc
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from exporter.model.devices import Inventory, Owners
from exporter.model.snapshot import Health
from exporter.ownership.kernel_events import MOST_EVENTS, MOST_WAITING, KernelEvents
from exporter.sources.kernel_log.kernel_log_source import DEVICE, KernelLog
from exporter.telemetry import Telemetry
from tests.sources.kernel_log.test_kernel_lines import FORMS
from tests.support.machine_pace import seconds_of
from tests.support.waiting import until

XID = "NVRM: Xid (PCI:0000:65:00): {}, pid={}, name=python3, Ch 00000001"


class Pipe:
    """A log that a test writes, and what reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.telemetry = Telemetry()
        self.healths: list[Health] = []
        self.events = KernelEvents()
        self.sequence = 0
        self.writer: int | None = None
        self.looks = 0
        self.log = self.reader()

    def reader(self) -> KernelLog:
        log = KernelLog(
            path=str(self.path),
            events=self.events,
            telemetry=self.telemetry,
            on_health=lambda _, health: self.healths.append(health),
        )
        log.look = self.look
        return log

    async def look(self, _: float) -> None:
        self.looks += 1
        now = time.monotonic()
        self.events.look(Owners(), Inventory(), asked_at=now, now=now)

    async def begin(self) -> None:
        """Open it: the writer first, since a pipe without one has ended."""
        self.writer = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        self.log.begin()
        await until(lambda: self.log.health.up)

    async def write(self, *messages: str, sequences: int = 1) -> None:
        """Records 2 s apart, whose numbers go on by `sequences`, each with a dictionary, as the kernel's have."""
        assert self.writer is not None
        for message in messages:
            self.sequence += sequences
            record = f"3,{self.sequence},{self.sequence * 2_000_000},-;{message}"
            rest = f"{record}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:65:00.0\n".encode()
            while rest:
                with suppress(BlockingIOError):
                    rest = rest[os.write(self.writer, rest) :]
                if rest:
                    await asyncio.sleep(0.001)

    async def close(self) -> None:
        await self.log.close()
        if self.writer is not None:
            os.close(self.writer)


@pytest.fixture
async def pipe(tmp_path: Path) -> AsyncIterator[Pipe]:
    os.mkfifo(tmp_path / "kmsg")
    pipe = Pipe(tmp_path / "kmsg")
    yield pipe
    await pipe.close()


# issue 30, line 2
async def test_all_forms_come_through_a_pipe(pipe: Pipe) -> None:
    await pipe.begin()
    await pipe.write("Linux version 6.18", *(message for message, _ in FORMS), "usb 1-1: new device")
    ours = [each for each in FORMS if each[1].get("kind") != "pcie"]  # of PCI Express those of GPUs alone
    await until(lambda: len(pipe.events.newest) == len(ours))
    # the newest first
    assert [each.event.code for each in pipe.events.newest] == [expected.get("code") for _, expected in reversed(ours)]
    assert all(abs(each.at_seconds - time.time()) < 60 for each in pipe.events.newest)
    assert pipe.telemetry.kernel_records == {"read": len(FORMS) + 2, "lost": 0, "dropped": 0}
    assert pipe.log.sequence == len(FORMS) + 2
    assert len(FORMS) >= 25


# issue 30, line 2
async def test_what_was_in_the_log_before_is_no_event_unless_it_is_resumed(pipe: Pipe) -> None:
    pipe.writer = os.open(pipe.path, os.O_RDWR | os.O_NONBLOCK)
    await pipe.write(XID.format(13, 1), XID.format(31, 2), XID.format(43, 3))
    pipe.log.begin()
    await until(lambda: pipe.log.sequence == 3)
    await until(lambda: pipe.log.health.up)
    await pipe.write(XID.format(79, 4))
    await until(lambda: pipe.events.newest)
    assert [each.event.code for each in pipe.events.newest] == [79]

    await pipe.log.close()
    # another process, to which the last one has left the number of the last record
    pipe.events, pipe.sequence = KernelEvents(), 0
    pipe.log = pipe.reader()
    pipe.log.sequence = 2
    await pipe.write(XID.format(13, 1), XID.format(31, 2), XID.format(43, 3), XID.format(79, 4))
    pipe.log.begin()
    await until(lambda: len(pipe.events.newest) == 2)
    assert [each.event.code for each in pipe.events.newest] == [79, 43]


# issue 30, line 2
async def test_records_that_the_kernel_overwrote_are_counted(pipe: Pipe) -> None:
    await pipe.begin()
    await pipe.write(XID.format(13, 1))
    await pipe.write(XID.format(31, 1), sequences=1_001)
    await until(lambda: len(pipe.events.newest) == 2)
    assert pipe.telemetry.kernel_records == {"read": 2, "lost": 1_000, "dropped": 0}


async def longest_stop(work: Callable[[], Awaitable[None]]) -> float:
    """The longest time for which the event loop did nothing else while it worked, in seconds of this process' CPU."""
    longest, is_over = 0.0, False

    async def watch() -> None:
        nonlocal longest
        while not is_over:
            # CPU time: other programs of a busy machine are not ours
            before = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - before)

    watching = asyncio.create_task(watch())
    gc.disable()  # what other tests have left behind is not ours, either
    try:
        await work()
    finally:
        gc.enable()
        is_over = True
        await watching
    return longest


# issue 30, line 2
async def test_a_flood_is_bounded_and_counted_and_never_stops_the_loop(pipe: Pipe) -> None:
    lines = 30_000
    await pipe.begin()
    assert pipe.writer is not None
    writer = pipe.writer
    # 10,000 lines are in it at a time
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 20)
    # of as many processes: no two are one error
    records = (f"3,{number},{number * 2_000_000},-;{XID.format(31, number)}\n" for number in range(1, lines + 1))
    flood_of_records = memoryview("".join(records).encode())

    async def flood() -> None:
        written = 0
        while written < len(flood_of_records):
            with suppress(BlockingIOError):
                written += os.write(writer, flood_of_records[written : written + (1 << 20)])
            await asyncio.sleep(0.001)
        await until(lambda: pipe.telemetry.kernel_records["read"] == lines, seconds=120)

    longest = await longest_stop(flood)
    assert longest < seconds_of(30)  # usually 5 pieces of work, and hundreds where it is not done in slices
    assert len(pipe.events.newest) == MOST_EVENTS
    assert pipe.telemetry.kernel_records["lost"] == 0
    assert pipe.telemetry.kernel_records["dropped"] > lines / 2
    assert len(pipe.events._waiting) <= MOST_WAITING
    assert len(pipe.events._errors) <= MOST_WAITING


async def test_a_log_that_ends_is_opened_again(pipe: Pipe) -> None:
    await pipe.begin()
    assert pipe.writer is not None
    os.close(pipe.writer)
    pipe.writer = None
    await until(lambda: pipe.log.health.up is False)
    assert pipe.log.health.reason == "truncated"
    pipe.writer = os.open(pipe.path, os.O_RDWR | os.O_NONBLOCK)
    await until(lambda: pipe.log.health.up)
    await pipe.write(XID.format(79, 4))
    await until(lambda: pipe.log.sequence == 1)


@pytest.mark.parametrize("make", ["missing", "permission"])
async def test_a_log_that_may_not_be_read_says_what_it_needs(
    pipe: Pipe, make: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if make == "missing":
        pipe.path.unlink()
    else:

        def refuse(*_: object) -> int:
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "open", refuse)
    pipe.log.begin()
    await until(lambda: pipe.log.health.up is False)
    monkeypatch.undo()
    assert pipe.log.health.reason == make
    needs = {"missing": "mount the node's /dev/kmsg", "permission": "CAP_SYSLOG"}
    assert needs[make] in pipe.log.health.remedy


@asynccontextmanager
async def own_log() -> AsyncIterator[Pipe]:
    own = Pipe(Path(DEVICE))
    own.log.begin()
    await until(lambda: own.log.health.up is not None)
    yield own
    await own.log.close()


def may_write() -> bool:
    return os.access(DEVICE, os.R_OK | os.W_OK) and os.geteuid() == 0


# issue 30, line 2
@pytest.mark.skipif(not may_write(), reason=f"only root may write {DEVICE}")
async def test_the_machine_s_own_log_is_followed() -> None:
    async with own_log() as own:
        if not own.log.health.up:
            pytest.skip(f"{DEVICE}: {own.log.health.message}")
        pid = os.getpid()
        line = f"NVRM: Xid (PCI:0000:65:00): 79, pid={pid}, name=a\tb, written by a test of pod-gpu-metrics-exporter"
        Path(DEVICE).write_bytes(f"<4>{line}\n".encode())
        await until(lambda: any(each.event.pid == pid for each in own.events.newest))
        (event,) = (each.event for each in own.events.newest if each.event.pid == pid)
        assert (event.kind, event.code, event.address, event.process) == ("xid", 79, "0000:65:00.0", "a b")
        assert own.log.sequence is not None
        assert own.log.sequence >= event.sequence
