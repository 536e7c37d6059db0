"""How much of the code runs for a scrape in which nothing has changed: counted, since a clock would guess."""

import asyncio
import sys
from types import FrameType

from exporter.simulator.node import SimulatedNode
from exporter.sources.single_flight import SingleFlight
from tests.support.exporter import Start

MOST_STEPS = 170


# issue 15, line 28
async def test_a_steady_scrape_takes_few_steps(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(accounting_mode="off", kubelet_max_age="1m")
    steps = []

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and "/exporter/" in file and "/simulator/" not in file and "/tests/" not in file:
            steps.append(frame.f_code.co_qualname)

    for profile in (None, None, note):
        sys.setprofile(profile)
        try:
            await exporter.page()
        finally:
            sys.setprofile(None)
    assert len(steps) <= MOST_STEPS, steps


# issue 15, line 28
async def test_a_read_begins_at_once_where_python_can() -> None:
    begun = False

    async def read() -> bool:
        nonlocal begun
        begun = True
        await asyncio.sleep(0)
        return begun

    attempt = SingleFlight(read).begin()
    assert begun is (sys.version_info >= (3, 12))
    assert await attempt
