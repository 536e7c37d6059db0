"""Waiting for something that another task or process brings about."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Return once `condition` holds, looking every 5 ms; raises TimeoutError after so many seconds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
