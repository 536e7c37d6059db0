"""How much of the code runs for a scrape in which nothing has changed: counted, since a clock would guess."""

import asyncio
import sys
from types import FrameType

from exporter.sources.single_flight import SingleFlight
from tests.support.exporter import Start
from tests.support.simulated import SimulatedNode

# 27 of them are those of claims with admin access and of allocators, which a look asks about, mostly for nothing
MOST_STEPS = 201


# issue 15, line 28
async def test_a_steady_scrape_takes_few_steps(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(accounting_mode="off", kubelet_max_age="1m")
    fewest: list[str] | None = None
    await exporter.page()
    await exporter.page()
    for _ in range(5):  # what the program does by itself now and then may fall into a scrape
        steps: list[str] = []

        def note(frame: FrameType, event: str, _: object, steps: list[str] = steps) -> None:
            file = frame.f_code.co_filename
            if event == "call" and "/exporter/" in file and "/simulator/" not in file and "/tests/" not in file:
                steps.append(frame.f_code.co_qualname)

        sys.setprofile(note)
        try:
            await exporter.page()
        finally:
            sys.setprofile(None)
        fewest = min(fewest or steps, steps, key=len)
    assert fewest
    assert len(fewest) <= MOST_STEPS, fewest


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
