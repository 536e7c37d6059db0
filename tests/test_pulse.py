"""When the next beat is due, and that beats neither drift nor pile up."""

import asyncio

import pytest

from exporter.pulse import Pulse, next_beat
from tests.support.virtual_time import run


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


def test_a_slow_beat_is_followed_by_one_and_they_never_overlap() -> None:
    began: list[float] = []
    running = most = 0

    async def beat() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        began.append(asyncio.get_running_loop().time())
        # the second one lasts for five intervals and a half
        await asyncio.sleep(5.5 if len(began) == 2 else 0.0)
        running -= 1

    async def scenario() -> None:
        pulse = Pulse(beat)
        pulse.every(1.0)
        await asyncio.sleep(9.5)
        await pulse.close()

    run(scenario())
    assert most == 1
    assert began == pytest.approx([0.0, 1.0, 6.5, 7.0, 8.0, 9.0])


def test_beats_that_take_their_time_do_not_drift() -> None:
    began: list[float] = []

    async def beat() -> None:
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.4)

    async def scenario() -> None:
        pulse = Pulse(beat)
        pulse.every(1.0)
        await asyncio.sleep(12.5)
        await pulse.close()

    run(scenario())
    assert began == pytest.approx(list(range(13)))


def test_new_intervals_do_not_disturb_a_beat_under_way() -> None:
    ended: list[float] = []

    async def beat() -> None:
        await asyncio.sleep(5.0)
        ended.append(asyncio.get_running_loop().time())

    async def scenario() -> None:
        pulse = Pulse(beat)
        pulse.every(3600.0)
        await asyncio.sleep(1.0)
        for seconds in (3600.0, 1800.0, None):
            pulse.every(seconds)
        await asyncio.sleep(9.0)
        assert ended == [5.0]
        pulse.every(3600.0)
        await asyncio.sleep(10.0)
        assert ended == [5.0, 15.0]
        await pulse.close()

    run(scenario())
