"""When NVML is read, and what is told of it while it fails."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from exporter.model.snapshot import Health
from exporter.simulator.nvml import SimulatedNvml
from exporter.sources.nvml import library
from exporter.sources.nvml.library import UNINITIALIZED
from exporter.sources.nvml.nvml_source import (
    AGAIN_SECONDS,
    DEADLINE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PAUSE,
    NoNvml,
    Nvml,
)
from exporter.sources.source import is_absent
from tests.support.clock import Clock
from tests.support.nvml import GPU, loads, stand_in, until_nobody_uses_it, whole_and_cut
from tests.support.waiting import until


@pytest.fixture
async def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNvml]:
    made = stand_in(tmp_path, more=["process 0 -1 -1 7 c 9"])
    loads(monkeypatch, made)
    yield made
    made.write(whole_and_cut())
    await until_nobody_uses_it()


@pytest.fixture
async def new_source() -> AsyncIterator[Callable[..., Nvml]]:
    sources = []

    def make(clock: Clock, healths: list[Health], *, is_missed: bool = True) -> Nvml:
        sources.append(Nvml(is_missed=is_missed, on_health=lambda _, health: healths.append(health), clock=clock))
        return sources[-1]

    yield make
    for source in sources:
        await source.close()


async def test_a_look_begins_a_reading_a_second_after_the_last_and_takes_that(
    nvml: SimulatedNvml, new_source: Callable[..., Nvml]
) -> None:
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths)
    first = source.begin()
    assert first is not None
    assert source.begin() is first, "a second look waits for the same reading"
    await first
    before = source.reading
    assert before is not None
    assert [gpu.uuid for gpu in source.inventory.gpus] == [GPU(0), GPU(1)]
    assert {name: (bound.used(), bound.most > 1) for name, bound in source.bounds.items()} == {
        "nvml_gpus": (2, True),
        "gpu_processes": (1, True),
    }
    known = source.inventory
    clock.ahead = AGAIN_SECONDS - 0.1
    assert source.begin() is None
    assert source._worker.busy_seconds is None, "it is not due"
    clock.ahead = AGAIN_SECONDS
    assert source.begin() is None, "only the first reading is worth waiting for"
    await until(lambda: len(healths) == 2)
    assert (source.reading is before, source.inventory is known) == (False, True)
    assert (source.reading or before).read_at == before.read_at + AGAIN_SECONDS


async def test_after_failures_of_the_library_the_pauses_grow(
    nvml: SimulatedNvml, new_source: Callable[..., Nvml]
) -> None:
    nvml.write(whole_and_cut(), [f"fail nvmlDeviceGetCount_v2 {UNINITIALIZED} -1"])
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths)
    source.begin()
    await until(lambda: len(healths) == 1)
    pauses, asked = [], 1
    for tenths in range(1, 2500):
        clock.ahead = tenths / 10
        source.begin()
        if source._worker.busy_seconds is not None:
            asked += 1
            pauses.append(clock.ahead)
            await until(lambda: len(healths) == asked)  # noqa: B023 - awaited within its turn
    between = [round(later - earlier) for earlier, later in zip([0.0, *pauses], pauses, strict=False)]
    assert between[:7] == [1, 2, 4, 8, 16, 32, 60]
    assert (PAUSE.first_seconds, max(between)) == (1, LONGEST_PAUSE_SECONDS)
    assert {health.reason for health in healths} == {"unreachable"}
    nvml.write(whole_and_cut())
    clock.ahead += LONGEST_PAUSE_SECONDS
    source.begin()
    await until(lambda: source.health.up is True)


async def test_a_call_that_hangs_is_told_once_and_what_was_known_of_gpus_stays(
    nvml: SimulatedNvml, new_source: Callable[..., Nvml]
) -> None:
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths)
    first = source.begin()
    assert first is not None
    await first
    known = source.inventory
    nvml.write(whole_and_cut(), ["hang nvmlDeviceGetProcessUtilization 60000"])
    clock.ahead = AGAIN_SECONDS
    source.begin()
    await until(lambda: source._library.calling == "nvmlDeviceGetProcessUtilization")
    clock.ahead += DEADLINE_SECONDS + 1
    for _ in range(3):
        assert source.begin() is None
    assert [health.reason for health in healths] == ["", "deadline"]
    assert "nvmlDeviceGetProcessUtilization has not come back" in source.health.message
    assert source.inventory is known
    assert source.reading is not None
    assert source.reading.processes is None, "they are not known, which is not none"
    nvml.write(whole_and_cut())
    await until(lambda: source.health.up is True)
    assert source.reading.processes is not None


async def test_a_library_that_comes_later_is_found(
    nvml: SimulatedNvml, new_source: Callable[..., Nvml], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    later = tmp_path / "later.so.1"
    monkeypatch.setattr(library, "NAME", str(later))
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths, is_missed=False)
    first = source.begin()
    assert first is not None
    await first
    assert (is_absent(source.health), healths) == (True, [])
    nvml.library.with_name("nvml.txt").rename(tmp_path / "nvml.txt")
    later.write_bytes(nvml.library.read_bytes())
    clock.ahead = LONGEST_PAUSE_SECONDS
    source.begin()
    await until(lambda: source.health.up is True)
    assert len(source.inventory.gpus) == 2


async def test_a_fault_of_the_program_is_told_and_ends_nothing(
    nvml: SimulatedNvml, new_source: Callable[..., Nvml], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths)
    monkeypatch.setattr(source, "_clock", lambda: 0.0)
    monkeypatch.setattr(source, "_read", lambda: 1 / 0)
    source.begin()
    await until(lambda: len(healths) == 1)
    assert "ZeroDivisionError" in source.health.message


async def test_what_comes_back_after_the_end_is_not_told(nvml: SimulatedNvml, new_source: Callable[..., Nvml]) -> None:
    nvml.write(whole_and_cut(), ["hang nvmlDeviceGetCount_v2 300"])
    clock, healths = Clock(), list[Health]()
    source = new_source(clock, healths)
    source.begin()
    await source.close()
    await until(lambda: not library.Library.users and source._worker.busy_seconds is None)
    assert (healths, source.reading) == ([], None)


async def test_where_nvml_is_off() -> None:
    off = NoNvml()
    assert (is_absent(off.health), off.begin(), off.inventory.gpus, off.reading) == (True, None, (), None)
    assert {bound.used() for bound in off.bounds.values()} == {0}
    await off.close()
