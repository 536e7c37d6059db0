"""The node's GPUs and MIG instances by its CDI specs, followed as they change.

NVIDIA's container toolkit, device plugin and DRA driver write them for the container runtime. Together with the
driver's list of MIG capabilities they say which instance a MIG UUID is, and neither takes a library or a privilege.

The files are looked at every second, on a thread, whoever scrapes: so a GPU that is cut anew is known before the next
scrape, and no scrape waits. What reads them is imported with the first one: nodes without specs do not carry it.
"""

import asyncio
import os
import time
from typing import TYPE_CHECKING

from exporter.model.devices import Inventory
from exporter.model.snapshot import Health
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth, absent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from exporter.sources.cdi.specs import Reading

NAME = "cdi"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
MINORS = "/proc/driver/nvidia-caps/mig-minors"
AGAIN_SECONDS = 1.0
MOST_DEVICES = 8192  # GPUs and MIG instances of all files together
_ABSENT = absent(
    f"there is no CDI spec in {' or '.join(FOLDERS)}",
    "where NVIDIA's container toolkit or device plugin writes some, mount the two folders read-only",
)


class CdiInventory:
    """The inventory as the CDI specs tell it. Where there is none, nobody misses it."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS

    def __init__(
        self, *, folders: tuple[str, ...], minors: str, on_health: OnHealth, again_seconds: float = AGAIN_SECONDS
    ) -> None:
        """`minors` is the driver's list of MIG capabilities."""
        self.inventory = Inventory()
        self.bounds: Mapping[str, Bound] = {
            "cdi_devices": Bound(MOST_DEVICES, lambda: self._reading.devices if self._reading else 0)
        }
        self._folders = folders
        self._minors = minors
        self._again_seconds = again_seconds
        self._attempts = Attempts(NAME, on_health)
        self._reading: Reading | None = None
        self._first: asyncio.Task[None] | None = None
        self._following: asyncio.Task[None] | None = None

    @property
    def health(self) -> Health:
        """How the last look at the files went; that of an absent source where there are none."""
        return self._attempts.health if self._reading and self._reading.is_there else _ABSENT

    def begin(self) -> Attempt | None:
        """Look at the files from now on; only the first look is worth waiting for."""
        if self._first is None:
            self._first = asyncio.create_task(self._look())
            self._following = asyncio.create_task(self._follow(self._first))
        return None if self._first.done() else self._first

    async def close(self) -> None:
        """Wait for nobody: a thread that reads ends with its read."""
        for task in (self._first, self._following):
            if task is not None:
                task.cancel()

    async def _follow(self, first: asyncio.Task[None]) -> None:
        await asyncio.wait((first,))
        while True:
            await asyncio.sleep(self._again_seconds)
            await self._look()

    async def _look(self) -> None:
        started = time.monotonic()
        reading = await asyncio.to_thread(self._read)
        if reading is self._reading:
            if self._attempts.health.up:
                self._attempts.heard(time.time())
            return
        self._reading = reading
        if reading is not None:
            if reading.inventory != self.inventory:
                self.inventory = reading.inventory
            if reading.is_there:
                took = time.monotonic() - started
                self._attempts.note(reading.error, took_seconds=took, now_seconds=time.time(), odd=reading.odd)

    def _read(self) -> "Reading | None":
        """On a thread: what the files say now; the last reading where nothing has changed."""
        if self._reading is None and not any(map(_has_something, self._folders)):
            return None
        from exporter.sources.cdi.specs import read  # noqa: PLC0415 - see above

        return read(self._folders, self._minors, self._reading, MOST_DEVICES)


def _has_something(folder: str) -> bool:
    """Whether there is something in a folder, or it cannot be read, which is worth saying."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError:
        return True
