"""The inventory of the GPUs that NVIDIA's driver lists: /proc/driver/nvidia/gpus/<bus location>/information.

Every container has the files, unless something is mounted over /proc/driver; a reader needs no library and no
privilege. A line is `Key:`, blanks and a value. The source reads `GPU UUID` (all question marks if the driver could not
start the GPU) and `Device Minor` (N of /dev/nvidiaN). The files have nothing about MIG. A driver that has lost a GPU
may take long to answer, so a thread reads the files.
"""

import asyncio
import re
import time
from itertools import islice
from pathlib import Path

from exporter.errors import Unavailable
from exporter.model.devices import Inventory, InventoryGpu
from exporter.model.snapshot import Health
from exporter.sources.polled import Polled
from exporter.sources.source import Clock, OnHealth, absent

NAME = "driver"
FOLDER = "/proc/driver/nvidia/gpus"
# GPUs come and go only with drivers and bus resets
AGAIN_SECONDS = 60.0
MOST_GPUS = 256
MOST_BYTES = 16 * 1024
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ABSENT = absent(f"there is no {FOLDER}", "load NVIDIA's driver, and mount nothing over /proc/driver")


def parse(text: str, location: str = "") -> InventoryGpu | None:
    """The GPU in the text of a file at this location; None as long as the driver does not know its UUID."""
    values = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    uuid = values.get("GPU UUID", "")
    minor = values.get("Device Minor", "")
    if not _UUID.fullmatch(uuid):
        return None
    device = f"nvidia{int(minor)}" if minor.isascii() and minor.isdigit() else ""
    return InventoryGpu(uuid=uuid, device=device, address=location)


def read(folder: Path) -> tuple[InventoryGpu, ...] | None:
    """The GPUs of all files, sorted by bus location; None without the folder. Raises OSError: a file cannot be read."""
    try:
        locations = sorted(islice(folder.iterdir(), MOST_GPUS))
    except FileNotFoundError:
        return None
    gpus = []
    for location in locations:
        try:
            with (location / "information").open("rb") as file:
                gpus.append(parse(file.read(MOST_BYTES).decode("utf-8", "replace"), location.name))
        except FileNotFoundError:
            continue  # the GPU fell off the bus since the folder was listed
    return tuple(gpu for gpu in gpus if gpu)


class DriverInventory(Polled):
    """The driver's inventory, read again every minute. Without a driver the source is absent."""

    def __init__(self, *, folder: str, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        super().__init__(NAME, on_health, again_seconds=AGAIN_SECONDS, placeholder=_ABSENT, clock=clock)
        self.inventory = Inventory()
        self._folder = Path(folder)

    async def _look(self) -> Health | None:
        try:
            gpus = await asyncio.to_thread(read, self._folder)
        except OSError as why:
            message = f"{self._folder} cannot be read: {why.strerror or why}"
            remedy = "is the driver well (nvidia-smi, the kernel's log)? Until then the last good read counts"
            raise Unavailable("permission", message, remedy=remedy) from why
        if (gpus or ()) != self.inventory.gpus:
            self.inventory = Inventory(gpus=gpus or ())
        return _ABSENT if gpus is None else None
