"""Long work on the event loop: the pure core works in slices, and other tasks run in between.

Tests: tests/node/test_large_pages.py.
"""

import asyncio
import time
from typing import TypeVar

from exporter.model.slices import Work

T = TypeVar("T")

# A task that waits for a timer goes on in the third round of the loop, which is after three times this and a slice. So
# the kubelet's probes are answered in time, however large a page is.
SLICE_SECONDS = 0.003


async def in_slices(work: Work[T]) -> T:
    """Do the work, and return its result. Short work is done without a pause."""
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
