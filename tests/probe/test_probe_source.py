"""The source turns by its own timer, tells who follows, and detaches whatever fails."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator

import pytest

from exporter.errors import Unavailable
from exporter.model.cuda import CudaReading
from exporter.model.snapshot import Health
from exporter.probe import probe_source
from exporter.probe.probe import ProbeAnswer
from exporter.probe.probe_source import CudaProbe
from tests.support.waiting import until


class FakeProbe:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failure: Exception | None = None
        self.is_detached = threading.Event()

    def scan(self) -> None:
        self.calls.append("scan")

    def read(self) -> ProbeAnswer:
        self.calls.append("read")
        if self.failure:
            raise self.failure
        return ProbeAnswer(reading=CudaReading(read_at_ns=len(self.calls)), programs=3)

    def detach(self) -> None:
        self.is_detached.set()

    def close(self) -> None:
        self.calls.append("close")


@pytest.fixture
def probe() -> FakeProbe:
    return FakeProbe()


@pytest.fixture
def healths() -> list[Health]:
    return []


@pytest.fixture
async def running(probe: FakeProbe, healths: list[Health], monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[CudaProbe]:
    monkeypatch.setattr(probe_source, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(probe_source, "PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(probe_source, "_open", lambda *_, **__: probe)
    made = CudaProbe(
        proc="/proc",
        interval_seconds=0.05,
        max_programs=8,
        any_kernel=False,
        on_health=lambda _, health: healths.append(health),
    )
    yield made
    await made.close()


async def turns(running: CudaProbe, number: int) -> list[ProbeAnswer]:
    heard: list[ProbeAnswer] = []
    enough = asyncio.Event()

    def hear(turn: ProbeAnswer) -> None:
        heard.append(turn)
        if len(heard) == number:
            enough.set()

    running.followers.append(hear)
    assert running.begin() is None
    await enough.wait()
    running.followers.remove(hear)
    return heard


async def test_it_reads_often_and_scans_seldom(running: CudaProbe, probe: FakeProbe) -> None:
    heard = await turns(running, 10)
    assert probe.calls[:2] == ["scan", "read"]
    assert 1 <= probe.calls.count("scan") < probe.calls.count("read")
    assert running.turn is not None
    assert running.bounds["probed_programs"].used() == 3
    assert [turn.reading.read_at_ns for turn in heard] == sorted(turn.reading.read_at_ns for turn in heard)


async def test_many_looks_begin_one_task(running: CudaProbe) -> None:
    before = len(asyncio.all_tasks())
    for _ in range(5):
        running.begin()
    assert len(asyncio.all_tasks()) == before + 1


async def test_a_failure_detaches_and_is_tried_again(
    running: CudaProbe, probe: FakeProbe, healths: list[Health]
) -> None:
    await turns(running, 1)
    probe.failure = Unavailable("permission", "not permitted", remedy="permit it")
    while running.health.up:
        await asyncio.sleep(0.01)
    assert running.turn is None
    assert probe.calls[-1] == "close"
    assert running.health.message == "not permitted"
    probe.failure = None
    calls = len(probe.calls)
    await turns(running, 1)
    assert probe.calls[calls:][-2:] == ["scan", "read"], "nothing is attached of what was before"
    assert running.health.up


async def test_an_own_fault_detaches_too(
    running: CudaProbe, probe: FakeProbe, caplog: pytest.LogCaptureFixture
) -> None:
    await turns(running, 1)
    probe.failure = ZeroDivisionError("a fault")
    while running.health.up:
        await asyncio.sleep(0.01)
    assert probe.calls[-1] == "close"
    assert running.turn is None
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_a_fault_of_those_who_follow_detaches_too_and_is_tried_again(
    running: CudaProbe, probe: FakeProbe, healths: list[Health], caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody counts what the kernel goes on to count: so it shall not, and the source is not called well."""
    is_faulty = True

    def hear(_: ProbeAnswer) -> None:
        if is_faulty:
            raise ZeroDivisionError("a fault")

    running.followers.append(hear)
    running.begin()
    while not healths:
        await asyncio.sleep(0.01)
    assert healths[0].up is False
    assert "fault of the exporter" in healths[0].message
    await until(lambda: running.turn is None)  # each further try sets it for a moment
    assert probe.calls[:3] == ["scan", "read", "close"]
    assert any(record.levelno == logging.ERROR for record in caplog.records)
    is_faulty = False
    await turns(running, 1)
    assert running.health.up
    assert running.opened == probe.calls.count("close") + 1


# issue 15, line 12
async def test_closing_detaches_while_the_worker_is_at_work(
    running: CudaProbe, probe: FakeProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def scan() -> None:
        begun.set()
        may_end.wait()

    monkeypatch.setattr(probe, "scan", scan)
    running.begin()
    await until(begun.is_set)
    await running.close()
    await until(probe.is_detached.is_set)
    assert probe.calls == []
    may_end.set()
    await until(lambda: probe.calls == ["read", "close"])


# issue 15, line 12
async def test_what_is_opened_after_closing_probes_nothing(
    running: CudaProbe, probe: FakeProbe, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def opened(*_: object, **__: object) -> FakeProbe:
        begun.set()
        may_end.wait()
        return probe

    monkeypatch.setattr(probe_source, "_open", opened)
    running.begin()
    await until(begun.is_set)
    await running.close()
    may_end.set()
    await until(lambda: probe.calls == ["read", "close"])


# issue 27, part 1: it opened the probe of the test after it
async def test_work_that_begins_after_closing_opens_nothing(running: CudaProbe, probe: FakeProbe) -> None:
    await running.close()
    with pytest.raises(Unavailable, match="is closed"):
        running._work()
    assert (running.opened, probe.calls) == (0, [])


async def test_closing_detaches(running: CudaProbe, probe: FakeProbe) -> None:
    await turns(running, 1)
    await running.close()
    while probe.calls[-1] != "close":
        await asyncio.sleep(0.01)
