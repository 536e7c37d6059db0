"""Long work on the event loop: the pure core does it in slices, and others go on in between."""

import asyncio
import time
from typing import TypeVar

from exporter.model.slices import Work

T = TypeVar("T")

# Together with a slice, which takes a few ms: a probe of the kubelet's is answered in time whatever page comes.
SLICE_SECONDS = 0.01


async def in_slices(work: Work[T]) -> T:
    """What comes of it. Short work is done without a pause."""
    until = time.monotonic() + SLICE_SECONDS
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        if time.monotonic() >= until:
            await asyncio.sleep(0)
            until = time.monotonic() + SLICE_SECONDS
