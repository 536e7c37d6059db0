"""When the next beat is due, and that beats neither drift nor pile up."""

import asyncio
import statistics

import pytest

from exporter.pulse import Pulse, next_beat
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("last", "now", "due"),
    [
        (100.0, 100.0, 110.0),
        (100.0, 103.0, 110.0),
        # clocks of an event loop may wake it a moment early
        (100.0, 99.999, 110.0),
        (100.0, 109.999, 110.0),
        # overdue: at once, and the one after it in the old rhythm
        (100.0, 111.0, 110.0),
        (110.0, 111.0, 120.0),
        # several were missed: one of them follows
        (100.0, 137.0, 130.0),
        (130.0, 137.0, 140.0),
    ],
)
def test_beats_keep_their_rhythm(last: float, now: float, due: float) -> None:
    assert next_beat(last, 10.0, now) == due


async def test_a_slow_beat_is_followed_by_one_and_they_never_overlap() -> None:
    began: list[float] = []
    running = most = 0
    loop = asyncio.get_running_loop()

    async def beat() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        began.append(loop.time())
        # the second one lasts for five intervals and a half
        await asyncio.sleep(0.55 if len(began) == 2 else 0.0)
        running -= 1

    pulse = Pulse(beat)
    pulse.every(0.1)
    await until(lambda: len(began) >= 8)
    await pulse.close()
    assert most == 1
    slow_ended = began[1] + 0.55
    assert began[2] == pytest.approx(slow_ended, abs=0.15)
    assert began[7] - began[0] < 1.6


async def test_beats_that_take_their_time_do_not_drift() -> None:
    began: list[float] = []
    loop = asyncio.get_running_loop()

    async def beat() -> None:
        began.append(loop.time())
        await asyncio.sleep(0.02)

    pulse = Pulse(beat)
    pulse.every(0.05)
    await until(lambda: len(began) >= 13)
    await pulse.close()
    late = [(at - began[0]) % 0.05 for at in began[1:]]
    # the machine may be busy now and then; beats 0.05 s after the last one's end would be late by anything
    assert statistics.median(min(seconds, 0.05 - seconds) for seconds in late) < 0.009


async def test_what_is_told_again_changes_nothing_and_a_beat_that_runs_is_not_cut() -> None:
    ended = 0

    async def beat() -> None:
        nonlocal ended
        await asyncio.sleep(0.05)
        ended += 1

    pulse = Pulse(beat)
    pulse.every(3600.0)
    await asyncio.sleep(0.01)
    for seconds in (3600.0, 1800.0, None):
        pulse.every(seconds)
    await asyncio.sleep(0.1)
    assert ended == 1
    pulse.every(3600.0)
    await asyncio.sleep(0.1)
    assert ended == 2
    await pulse.close()
