"""Large and hostile pages through the whole node role: served or refused, and the event loop goes on meanwhile."""

import asyncio
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.stops import LIMIT_MIB, LOOK, PAGES, PATHS, Served, served, stops_of
from exporter.exposition.series import MOST_DEVICES
from tests.support.exporter import Start
from tests.support.machine_pace import seconds_of
from tests.support.simulated import Container, Pod, SimulatedNode

MIB = 1024 * 1024
# The longest time without a pause, in pieces of work, each of 3 ms; docs/developers/performance.md has at most 100 ms.
# Others on a machine make it up to three times that; what is not done in slices takes 500 and more.
MOST_PIECES = 150


def settled(path: Path, page: bytes) -> str:
    """The page as a file that is older than what is being written."""
    beside = path.with_suffix(".tmp")
    beside.write_bytes(page)
    before = time.time() - 5
    os.utime(beside, (before, before))
    beside.rename(path)
    return str(path)


GOOD = b'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 33\n'
LINES = 20_000
ORDINARY = b"".join(
    b'F%d{gpu="%d",UUID="GPU-%08d-1111-2222-3333-444455556666",Hostname="node-1"} %d\n'
    % (number % 100, number // 100, number // 100, number)
    for number in range(LINES)
)


@pytest.fixture(scope="module")
def exporter() -> Iterator[Served]:
    """The exporter in a process of its own; each test replaces its page."""
    with served(GOOD, held=10) as one:
        yield one


def rejected_in(metrics: bytes) -> int:
    """The number of lines without a valid sample in all pages so far."""
    (count,) = re.findall(rb'^pod_gpu_exporter_rejected_lines_total\{reason="syntax"\} (\d+)$', metrics, re.MULTILINE)
    return int(count)


# issue 7, line 22; issue 15, line 26
@pytest.mark.parametrize(
    ("page", "status", "rejected", "says"),
    [
        (GOOD + b'a{b="' + b"}" * (5 * MIB) + b'"} 1\n', 200, 1, ""),
        (GOOD + b'a{b="' + b"}" * (7 * MIB) + b'"} 1\n', 503, 0, "--dcgm.max-bytes"),
        (GOOD + b'a{b="' + b"x" * (5 * MIB) + b'"} 1\n', 200, 1, ""),
        (GOOD + b"a{" + b",".join(b'l%d=""' % number for number in range(500_000)) + b"} 1\n", 200, 1, ""),
        (GOOD + b"a{" + b",".join(b'l%d=""' % number for number in range(5_000)) + b"} 1\n", 200, 1, ""),
        (GOOD + b"x\n" * 50_000, 503, 0, "more than 50000 lines"),
        (b"x{\n" * LINES + GOOD, 200, LINES, ""),
    ],
    ids=["braces", "bytes", "long-line", "long-line-of-labels", "labels", "lines", "noise"],
)
def test_a_hostile_page_stops_nobody(exporter: Served, page: bytes, status: int, rejected: int, says: str) -> None:
    before = rejected_in(exporter.body("/metrics"))
    settled(exporter.page, page)
    exporter.mark()
    stops = [exporter.ask(path, **{"Accept-Encoding": "gzip"}) for path in ("/gpu/metrics", "/gpu/metrics", "/metrics")]
    assert [stop.status for stop in stops] == [status, status, 200]
    own = exporter.body("/metrics")
    assert rejected_in(own) - before == rejected
    assert says in own.decode()
    # once the longest was 24 s, with a second for an ordinary page
    assert max(stop.longest for stop in stops) < seconds_of(MOST_PIECES), stops


# issue 15, line 18
@pytest.mark.timeout(180)
def test_no_path_stops_the_loop_nor_passes_the_memory_limit() -> None:
    """On the page that takes the most memory: `make bench` has others."""
    stops = stops_of(PAGES["an owner a line (dcgm-exporter -k)"](), rounds=1)
    assert {*stops} == {*PATHS, LOOK}
    assert {path: stop for path, stop in stops.items() if stop.longest > seconds_of(MOST_PIECES)} == {}
    assert max(stop.most_mib for stop in stops.values()) < LIMIT_MIB


# issue 15, line 18
async def test_devices_beyond_the_bound_go_out_as_they_came_and_are_told_of(
    simulated: SimulatedNode, start: Start, tmp_path: Path
) -> None:
    beyond = MOST_DEVICES + 5
    devices = tuple(("nvidia.com/gpu", f"GPU-{number}") for number in (0, beyond))
    simulated.world.pods = (Pod(namespace="ml", name="train", containers=(Container(name="main", devices=devices),)),)
    lines = [f'DCGM_FI_DEV_POWER_USAGE{{gpu="{of}",UUID="GPU-{of}"}} {of}.5' for of in range(beyond + 1)]
    file = settled(tmp_path / "page.prom", "".join(f"{line}\n" for line in lines).encode())
    exporter = await start(dcgm_url=[], dcgm_file=file)
    page = await exporter.until_page(lambda page: 'pod="train"' in page)
    for of, line in enumerate(lines):
        labels, _, _ = line.partition("}")
        assert re.search(rf'{re.escape(labels)},pod="[^}}]*"}} {of}\.5\n', page)
    assert page.count('pod="train"') == 1
    _, objects = await exporter.get("/container/metrics")
    assert objects.count('"device_uuid"') == MOST_DEVICES + 1, "those of the page, and the one that is held"
    _, own = await exporter.get("/metrics")
    assert f'pod_gpu_exporter_bound_used{{of="devices"}} {MOST_DEVICES}\n' in own
    assert 'pod_gpu_exporter_unmatched_devices{reason="too_many_devices"} 1\n' in own
    _, mapping = await exporter.get("/debug/mapping")
    assert f"6 samples are of devices beyond the first {MOST_DEVICES} of their page" in mapping

    # there is room again once the page has fewer
    settled(tmp_path / "page.prom", "".join(f"{line}\n" for line in lines[6:]).encode())
    page = await exporter.until_page(lambda page: re.search(rf'UUID="GPU-{beyond}",pod="train"', page))
    assert 'pod_gpu_exporter_bound_used{of="devices"}' in (await exporter.get("/metrics"))[1]


# issue 7, line 22
async def test_scrapes_that_come_while_a_large_page_is_joined_get_it_whole(start: Start, tmp_path: Path) -> None:
    exporter = await start(dcgm_url=[], dcgm_file=settled(tmp_path / "page.prom", ORDINARY))
    scrapes = [asyncio.create_task(exporter.page()) for _ in range(3)]
    status, _ = await exporter.get("/-/healthy")
    assert (status, any(scrape.done() for scrape in scrapes)) == (200, False)  # it did not wait for them
    assert [text.count("\nF") for text in await asyncio.gather(*scrapes)] == [LINES - 1] * 3
