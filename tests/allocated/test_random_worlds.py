"""Random worlds: 100 pods come and go on 8 GPUs under each allocator, and no scrape names a wrong owner.

Words are up to 5 s late, ids are any, the kubelet restarts, streams of pods break off, pods of StatefulSets are made
anew under their names, and one word of fifty cannot be believed. Simulated time (driver.py): a world of an hour
takes seconds. `WORLDS=10 pytest tests/allocated` tries ten longer worlds of each allocator with each source of pods.
"""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from exporter.simulator.allocators import (
    AckGpushare,
    Ascend,
    Gpushare,
    Hami,
    Kai,
    Koordinator,
    RunAi,
    SimulatedAllocator,
    Volcano,
)
from tests.allocated.driver import Driver, Verdict, by_the_loop
from tests.support.virtual_time import run

ALLOCATORS = (Hami, Volcano, Gpushare, AckGpushare, Ascend, Kai, RunAi, Koordinator)
SOURCES = ("kubelet", "api")
WORLDS = int(os.environ.get("WORLDS", "0"))
KINDS_OF_EVENTS = 7
PODS = 300 if WORLDS else 100
# without more worlds, each allocator has one, and its pods are known by one source
CASES = [
    (kind, by, seed)
    for number, kind in enumerate(ALLOCATORS)
    for seed in range(1, max(1, WORLDS) + 1)
    for by in (SOURCES if WORLDS else SOURCES[number % 2 :][:1])
]


async def lived(kind: type[SimulatedAllocator], by: str, seed: int, folder: Path) -> Verdict:
    with by_the_loop():
        return await Driver(kind, by, seed, folder).run(PODS)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "by", "seed"), CASES)
def test_no_scrape_names_a_wrong_owner(
    kind: type[SimulatedAllocator], by: str, seed: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    random.seed(seed)  # of the pauses between attempts
    verdict = run(lived(kind, by, seed, tmp_path))
    record_property("unknown_seconds", dict(verdict.latest))
    assert verdict.pods >= PODS
    assert verdict.scrapes > 10 * PODS
    assert len(verdict.happened) == KINDS_OF_EVENTS
    assert verdict.wrong == []
    assert verdict.late == []
    assert verdict.ratios == []
    for namespace, seconds in verdict.true.items():
        accounted = verdict.accounted[namespace]
        # a time without an owner is nobody's; scrapes show it, so it may have begun later or ended earlier
        assert 0.99 * (seconds - verdict.unknown[namespace]) <= accounted <= 1.01 * seconds, namespace
        assert accounted == pytest.approx(seconds, rel=0.05), namespace
