"""The inventory of GPUs and MIG instances by the CDI specs of NVIDIA's toolkit, device plugin and DRA driver.

Together with the driver's list of MIG capabilities, specs tell which instance a MIG UUID is, without a library or
privilege. A thread looks at the files every second, so that no scrape waits for them. Nodes without specs do not import
the reader.
"""

import asyncio
import os
from typing import TYPE_CHECKING

from exporter.model.devices import Inventory
from exporter.model.snapshot import CDI
from exporter.sources.polled import Outcome, Polled
from exporter.sources.source import Bound, Bounds, OnHealth, absent

if TYPE_CHECKING:
    from exporter.sources.cdi.specs import SpecsReading

FOLDERS = ("/etc/cdi", "/var/run/cdi")
MINORS = "/proc/driver/nvidia-caps/mig-minors"
AGAIN_SECONDS = 1.0
MOST_DEVICES = 8192  # GPUs and MIG instances of all files together
_ABSENT = absent(
    f"there is no CDI spec in {' or '.join(FOLDERS)}",
    "where NVIDIA's container toolkit or device plugin writes some, mount the two folders read-only",
)


class CdiInventory(Polled):
    """The inventory by CDI specs. Without specs the source is absent, which is no failure."""

    def __init__(
        self, *, folders: tuple[str, ...], minors: str, on_health: OnHealth, again_seconds: float = AGAIN_SECONDS
    ) -> None:
        super().__init__(CDI, on_health, again_seconds=again_seconds, looks_by_itself=True, placeholder=_ABSENT)
        self.inventory = Inventory()
        self.bounds: Bounds = {
            "cdi_devices": Bound(MOST_DEVICES, lambda: self._reading.devices if self._reading else 0)
        }
        self._folders = folders
        self._minors = minors
        self._reading: SpecsReading | None = None

    async def _look(self) -> Outcome:
        self._reading = reading = await asyncio.to_thread(self._read)
        if reading is None:
            return _ABSENT
        if reading.inventory != self.inventory:
            self.inventory = reading.inventory
        if reading.error is not None:
            raise reading.error
        return reading.odd if reading.is_there else _ABSENT

    def _read(self) -> "SpecsReading | None":
        """Read the files, on a thread. Returns the last reading if nothing has changed; None without files."""
        if self._reading is None and not any(map(_has_something, self._folders)):
            return None
        from exporter.sources.cdi.specs import read  # noqa: PLC0415 - see above

        return read(self._folders, self._minors, self._reading, MOST_DEVICES)


def _has_something(folder: str) -> bool:
    """Whether a folder has entries, or cannot be read (then the reader says why)."""
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except FileNotFoundError:
        return False
    except OSError:
        return True
