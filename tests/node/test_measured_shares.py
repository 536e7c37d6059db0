"""Shared GPUs in every scrape of a while: what the rows show of their owners, of nobody and of the device.

As `demo --shared 3` has them, with pods that come and go. For a minute: MEASURED_SECONDS=60 pytest -s, with this file.
"""

import asyncio
import os
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from decimal import Decimal

import pytest

from exporter.sources.nvml import nvml_source
from tests.support.components import real
from tests.support.exporter import config_of, running
from tests.support.nvml import loads, until_nobody_uses_it
from tests.support.rows import Rows, rows_of
from tests.support.simulated import SimulatedNode, World

SECONDS = float(os.environ.get("MEASURED_SECONDS", "3"))
USED, FREE, BUSY = (f"DCGM_FI_DEV_{name}" for name in ("FB_USED", "FB_FREE", "GPU_UTIL"))
POWER, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
ACTIVE, DRAM = "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE"
NOBODY = ("", "")


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SimulatedNode]:
    """Eight GPUs, three of them shared, under pods that live a hundred times as fast."""
    simulated = SimulatedNode(World(gpus=8, shared=3, seed=10, speed=100), counters="full")
    real("gcc")
    assert simulated.nvml.build()
    loads(monkeypatch, simulated.nvml)
    monkeypatch.setattr(nvml_source, "AGAIN_SECONDS", 0.4)
    await simulated.start(step_seconds=2.0)
    yield simulated
    await until_nobody_uses_it()
    await simulated.stop()


class Scrape:
    """A page, and dcgm-exporter's own just before and after it."""

    def __init__(self, before: str, page: str, after: str) -> None:
        self.rows = rows_of(page)
        self._device = rows_of(before), rows_of(after)

    def device(self, family: str, uuid: str) -> tuple[Decimal, ...]:
        """The device's values, of which the page has one, or of counters one in between."""
        return tuple(value for rows in self._device for value in rows[family][uuid].values())

    def owners(self, uuid: str) -> set[tuple[str, str]]:
        return self.rows[USED][uuid].keys() - {NOBODY}

    def check(self, uuid: str, *, is_split: bool) -> None:
        """Memory and what is divided by the time of kernels add up to the device, utilisation is the owners' own."""
        owners, power = self.owners(uuid), self.rows[POWER][uuid]
        added_up = (USED, POWER, ACTIVE, DRAM) if is_split else (USED,)
        for family in added_up:
            of_gpu = self.rows[family][uuid]
            assert of_gpu.keys() == {*owners, NOBODY}, (family, of_gpu)
            # the machine takes a step every second
            assert sum(of_gpu.values()) in self.device(family, uuid), (family, of_gpu)
        assert self.rows[BUSY][uuid].keys() == owners
        assert self.rows[FREE][uuid].keys() == ({NOBODY} if is_split else owners)
        assert set(self.rows[FREE][uuid].values()) <= {*self.device(FREE, uuid)}
        ratios = self.rows[BUSY][uuid]
        if is_split and any(ratios.values()):
            assert not any(power[of] for of, ratio in ratios.items() if not ratio), "who does nothing draws nothing"


class Meter:
    """A GPU's counter of energy, and its rows, of which those that are gone stand where they were."""

    def __init__(self) -> None:
        self.rows: Rows = {}
        self.least, self.most = Decimal("-Infinity"), Decimal("Infinity")

    def add(self, rows: Rows, before: Decimal, after: Decimal) -> None:
        """Note a scrape between two values of the counter."""
        for of, value in rows.items():
            assert value >= self.rows.get(of, 0), "a counter fell"
        self.rows |= rows
        together = sum(self.rows.values())
        # the counter is always as far ahead of its rows together
        self.least, self.most = max(self.least, before - together), min(self.most, after - together)
        assert self.least <= self.most, "what the device drew is what its rows grew by"


# issue 10, "Must show" 2
@pytest.mark.parametrize("sharing", ["copy", "split"])
async def test_in_every_scrape_the_rows_of_shared_gpus_add_up(node: SimulatedNode, sharing: str) -> None:
    settings = {"kubelet_socket": str(node.socket), "dcgm_url": node.url, "root": str(node.root), "nvml_mode": "on"}
    meters: defaultdict[str, Meter] = defaultdict(Meter)
    seen: defaultdict[tuple[str, str, tuple[str, str]], set[Decimal]] = defaultdict(set)
    counts: Counter[str] = Counter()
    async with running(config_of(**settings, sharing=sharing)) as exporter:

        async def bare() -> str:
            async with exporter.session.get(node.url) as response:
                return await response.text()

        # until the driver has been asked once, and its processes were looked up
        await exporter.until_page(lambda page: any({NOBODY} < rows.keys() for rows in rows_of(page)[USED].values()))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            scrape = Scrape(await bare(), await exporter.page(), await bare())
            shared = [uuid for uuid, rows in scrape.rows[USED].items() if len(rows) > 1]
            counts += Counter(scrapes=1, gpus=len(shared), owners=sum(len(scrape.owners(uuid)) for uuid in shared))
            for uuid in shared:
                scrape.check(uuid, is_split=sharing == "split")
                for family in (USED, BUSY, POWER, ACTIVE):
                    for of, value in scrape.rows[family][uuid].items():
                        seen[family, uuid, of].add(value)
                counts["busy in several ways"] += len({*scrape.rows[BUSY][uuid].values()} - {0}) > 1
            if sharing == "split":
                for uuid, rows in scrape.rows[ENERGY].items():
                    meters[uuid].add(rows, *scrape.device(ENERGY, uuid))
            await asyncio.sleep(0.1)
    moved = Counter(family for (family, _, _), values in seen.items() if len(values) > 1)
    drawn = {of: joules for meter in meters.values() for of, joules in meter.rows.items() if of != NOBODY and joules}
    say(f"{sharing}: {dict(counts)}; series: {len(seen)}, moved: {dict(moved)}; drew energy: {len(drawn)}")
    assert counts["gpus"] >= 2 * counts["scrapes"]
    assert counts["busy in several ways"]
    assert moved[BUSY]
    assert len({value for (family, _, _), values in seen.items() if family == USED for value in values}) > 3
    if sharing == "split":
        assert moved[POWER]
        assert moved[ACTIVE]
        assert drawn


def say(what: str) -> None:
    """For whoever looks on (pytest -s)."""
    sys.stderr.write(f"\n{what}\n")
