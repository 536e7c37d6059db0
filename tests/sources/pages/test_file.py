"""A .prom file: read when it changed, refused when too old or half written."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exporter.errors import SourceError, Unavailable
from exporter.sources.pages import file as file_source
from exporter.sources.pages.file import PromFileSource
from tests.support.clock import Clock

PAGE = b'dcgm_gpu_temp{gpu="0",uuid="GPU-1"} 33\n'


def put(path: Path, body: bytes) -> None:
    """As a good writer does."""
    beside = path.with_suffix(".swp")
    beside.write_bytes(body)
    beside.replace(path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dcgm.prom"


@pytest.fixture
async def source(path: Path) -> AsyncIterator[PromFileSource]:
    made = PromFileSource(path=str(path), max_age_seconds=60.0, max_bytes=1000, on_health=lambda _name, _health: None)
    yield made
    await made.close()


async def reason_of(source: PromFileSource) -> str:
    with pytest.raises(SourceError) as raised:
        await source.begin()
    assert (source.health.up, source.health.reason) == (False, raised.value.reason)
    return raised.value.reason


async def test_a_file(source: PromFileSource, path: Path) -> None:
    put(path, PAGE)
    page = await source.begin()
    assert (page.source, page.body) == (f"file:{path}", PAGE)
    assert source.health.up is True


async def test_it_is_read_when_it_changed(source: PromFileSource, path: Path) -> None:
    put(path, PAGE)
    first = await source.begin()
    assert await source.begin() is first
    put(path, PAGE.replace(b"33", b"34"))
    assert (await source.begin()).body == PAGE.replace(b"33", b"34")


# issue 7, line 25
@pytest.mark.timeout(30)
async def test_a_fifo_in_its_place(source: PromFileSource, path: Path) -> None:
    os.mkfifo(path)
    assert await reason_of(source) == "permission"
    path.unlink()
    put(path, PAGE)
    assert (await source.begin()).body == PAGE


async def test_a_file_that_is_not_there(source: PromFileSource) -> None:
    assert await reason_of(source) == "missing"


async def test_a_folder_in_its_place(source: PromFileSource, path: Path) -> None:
    path.mkdir()
    assert await reason_of(source) == "permission"


async def test_a_file_whose_writer_died(source: PromFileSource, path: Path) -> None:
    put(path, PAGE)
    await source.begin()
    os.utime(path, (1e9, 1e9))
    assert await reason_of(source) == "stale"
    put(path, PAGE)
    assert (await source.begin()).body == PAGE


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (PAGE + b'dcgm_gpu_temp{gpu="1"', "truncated"),
        (b"", "no_samples"),
        (b"# x\n", "no_samples"),
        (PAGE * 50, "oversize"),
    ],
)
async def test_files_that_are_failures(source: PromFileSource, path: Path, body: bytes, reason: str) -> None:
    put(path, body)
    assert await reason_of(source) == reason


async def test_a_file_that_is_written_in_place_is_served_once_it_rests(
    source: PromFileSource, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [b'dcgm_gpu_temp{gpu="%d"} 33\n' % number for number in range(6)]

    async def write_slowly() -> None:
        with path.open("wb", buffering=0) as file:
            for row in rows:
                file.write(row)  # at every moment the file ends with a newline
                await asyncio.sleep(0.03)

    monkeypatch.setattr(file_source, "SETTLED_SECONDS", 1.0)  # a busy machine writes late
    writing = asyncio.create_task(write_slowly())
    await asyncio.sleep(0.01)
    assert (await source.begin()).body == b"".join(rows)
    await writing


async def test_a_clock_that_steps_makes_no_known_file_old(tmp_path: Path) -> None:
    path = tmp_path / "dcgm.prom"
    path.write_text('a{UUID="GPU-1"} 1\n')
    then = time.time() - 5
    os.utime(path, (then, then))
    clock = Clock(time.time)
    source = PromFileSource(
        path=str(path),
        max_age_seconds=60,
        max_bytes=1000,
        on_health=lambda *_: None,
        clock=clock,
    )
    page = await source.begin()
    for step in (3600.0, -3600.0):
        clock.ahead = step
        assert await source.begin() is page
    # one that is not known yet is as old as the clock says
    clock.ahead = 3600.0
    os.utime(path, (then + 1, then + 1))
    with pytest.raises(Unavailable):
        await source.begin()


# issue 22, line 36
async def test_a_name_with_two_units_goes_on_under_the_one_that_says_its_unit(
    source: PromFileSource, path: Path
) -> None:
    put(path, b'DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-1"} 1\n')
    assert (await source.begin()).body == b'DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-1"} NaN\n'
    assert (source.health.up, source.health.reason) == (True, "unit")
    put(path, b'DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0",UUID="GPU-1"} 87\n')
    assert (await source.begin()).body == b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1"} 87\n'
    assert (source.health.up, source.health.reason) == (True, "")
