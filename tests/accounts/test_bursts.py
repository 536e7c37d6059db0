"""Bursts of work, shorter than the 30 s between two reads of dcgm-exporter: what the page and the accounts have of it.

docs/developers/performance.md has the figures of 2 hours.
"""

import random

import pytest

from tests.support.looks import GPU, SECOND, Looks, energy, kernels, row, whole

ACTIVE, UTIL = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"
READ, HALF_AN_HOUR = 30, 1_800


def bursts(seed: int, longest: float) -> list[tuple[float, float]]:
    """A tenth of the time is busy, in bursts of a tenth of the longest one's length at least."""
    chance, now, made = random.Random(seed), 0.0, []
    while now < HALF_AN_HOUR:
        now += chance.expovariate(0.1 / (0.9 * 0.55 * longest))
        length = chance.uniform(0.1 * longest, longest)
        made.append((now, now + length))
        now += length
    return made


def busy(made: list[tuple[float, float]], begin: float, end: float) -> float:
    return sum(max(0.0, min(last, end) - max(first, begin)) for first, last in made)


# issue 20, "Busy seconds between scrapes"
@pytest.mark.parametrize("longest", [0.5, 2, 10])
@pytest.mark.parametrize("is_shared", [False, True])
def test_the_accounts_have_the_bursts_that_a_second_of_the_page_misses(longest: float, is_shared: bool) -> None:
    made = bursts(1, longest)
    held = {"a": whole(0)}
    if is_shared:
        held = {pod: [("nvidia.com/gpu.shared", f"{GPU(0)}::{share}")] for share, pod in enumerate("ab")}
    looks = Looks()
    for at in range(3, HALF_AN_HOUR, 10):
        read = at // READ * READ
        last_second = row(UTIL, str(round(100 * busy(made, read - 1, read))))
        mean = row(ACTIVE, f"{busy(made, read - READ, read) / READ:.6f}")
        ran = {"a": round(busy(made, 0, at) * SECOND), "": 0, **({"b": 0} if is_shared else {})}
        looks.at(at, energy("1") + mean + last_second, held, sm_ns=kernels(ran))
    active = looks.account("a").amounts["active_ns"] / SECOND
    # a read's mean holds until the next one, so the first half a minute is not in it, and one counts twice
    edges = busy(made, 0, READ) + busy(made, HALF_AN_HOUR - 2 * READ, HALF_AN_HOUR)
    assert active == pytest.approx(busy(made, 0, HALF_AN_HOUR), abs=edges + 1)
    reads = [read for read in range(READ, HALF_AN_HOUR, READ) if busy(made, read - READ, read)]
    missed = [read for read in reads if not busy(made, read - 1, read)]
    assert len(missed) > len(reads) / 3


# issue 20, "Idle since": nobody is idle by ignorance
@pytest.mark.parametrize(("share_of_time", "is_idle"), [(0.1, False), (0.04, True)])
def test_whose_kernels_ran_is_not_idle_whatever_a_second_of_the_page_shows(share_of_time: float, is_idle: bool) -> None:
    looks = Looks()
    for number in range(7):
        ran = {"a": round(10 * number * share_of_time * SECOND), "": 0}
        looks.at(10 * number, row(UTIL, "0"), {"a": whole(0)}, sm_ns=kernels(ran))
    assert (looks.account("a").idle_since_ns is not None) is is_idle
