"""Long work on the event loop: the pure core does it in slices, and other tasks run in between."""

import asyncio
import time
from typing import TypeVar

from exporter.model.slices import Work

T = TypeVar("T")

# What waits for a timer goes on in the third round of the loop, after three times this and a slice: a probe of the
# kubelet's is answered in time whatever page comes.
SLICE_SECONDS = 0.003


async def in_slices(work: Work[T]) -> T:
    """What comes of it. Short work is done without a pause."""
    until = time.monotonic() + SLICE_SECONDS
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_SECONDS
