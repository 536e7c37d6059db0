"""Large and hostile pages through the whole node role: served or refused, and the event loop goes on meanwhile."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from tests.support.exporter import Start

MIB = 1024 * 1024


class Lag:
    """How long the event loop did nothing else, at most, in CPU seconds: others use this machine, too."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self.seconds = max(self.seconds, time.thread_time() - before)

    def end(self) -> float:
        self._watching.cancel()
        return self.seconds


def settled(path: Path, page: bytes) -> str:
    """The page as a file that is older than what is being written."""
    beside = path.with_suffix(".tmp")
    beside.write_bytes(page)
    before = time.time() - 5
    os.utime(beside, (before, before))
    beside.rename(path)
    return str(path)


GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 33\n'
ORDINARY = b"".join(
    b'F%d{gpu="%d",UUID="GPU-%08d-1111-2222-3333-444455556666",Hostname="node-1"} %d\n'
    % (number % 100, number // 100, number // 100, number)
    for number in range(49_000)
)


# issue 7, line 22
@pytest.mark.parametrize(
    ("page", "status", "said"),
    [
        (GOOD + b'a{b="' + b"}" * (5 * MIB) + b'"} 1\n', 200, 'reason="syntax"} 1\n'),
        (GOOD + b'a{b="' + b"}" * (7 * MIB) + b'"} 1\n', 503, "--dcgm.max-bytes"),
        (GOOD + b'a{b="' + b"x" * (5 * MIB) + b'"} 1\n', 200, 'reason="syntax"} 1\n'),
        (GOOD + b"a{" + b",".join(b'l%d=""' % number for number in range(500_000)) + b"} 1\n", 200, 'syntax"} 1\n'),
        (GOOD + b"a{" + b",".join(b'l%d=""' % number for number in range(5_000)) + b"} 1\n", 200, 'syntax"} 1\n'),
        (GOOD + b"x\n" * 50_000, 503, "more than 50000 lines"),
        (b"x{\n" * 49_000 + GOOD, 200, 'reason="syntax"} 49000\n'),
        (ORDINARY, 200, 'reason="syntax"} 0\n'),
    ],
    ids=["braces", "bytes", "long-line", "long-line-of-labels", "labels", "lines", "noise", "ordinary"],
)
async def test_a_hostile_page_stops_nobody(start: Start, tmp_path: Path, page: bytes, status: int, said: str) -> None:
    exporter = await start(dcgm_url=[], dcgm_file=settled(tmp_path / "page.prom", page))
    lag = Lag()
    found = [(await exporter.get("/gpu/metrics"))[0] for _ in range(2)]
    _, own = await exporter.get("/metrics")
    # 24 s it was once, and 1 to 3 s for the ordinary one; what this test does itself with 8 MB of text counts, too
    assert lag.end() < 0.5
    assert found == [status, status]
    assert said in own


# issue 7, line 22
async def test_scrapes_that_come_while_a_large_page_is_joined_get_it_whole(start: Start, tmp_path: Path) -> None:
    exporter = await start(dcgm_url=[], dcgm_file=settled(tmp_path / "page.prom", ORDINARY))
    scrapes = [asyncio.create_task(exporter.page()) for _ in range(3)]
    status, _ = await exporter.get("/-/healthy")
    assert (status, any(scrape.done() for scrape in scrapes)) == (200, False)  # it did not wait for them
    assert [text.count("\nF") for text in await asyncio.gather(*scrapes)] == [48_999] * 3
