"""The GPUs that NVIDIA's driver lists: /proc/driver/nvidia/gpus/<bus location>/information.

The files are there in any container, unless something is mounted over /proc/driver. Reading them takes no library and
no privilege. They hold lines of `Key:`, blanks and a value. `GPU UUID` and `Device Minor` (N of /dev/nvidiaN) are read.
The UUID is all question marks where the driver could not start the GPU. The files know nothing of MIG.

A driver that has lost a GPU may take long to answer, so the files are read on a thread.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from exporter.errors import SourceError, Unavailable
from exporter.model.devices import Inventory, InventoryGpu
from exporter.model.snapshot import Health
from exporter.sources.source import PATIENCE_SECONDS, Attempt, Attempts, Bound, OnHealth, absent

NAME = "driver"
FOLDER = "/proc/driver/nvidia/gpus"
# GPUs come and go with drivers and bus resets: seldom
AGAIN_SECONDS = 60.0
MOST_GPUS = 256
MOST_BYTES = 16 * 1024
_UUID = re.compile(r"GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_ABSENT = absent(f"there is no {FOLDER}", "load NVIDIA's driver, and mount nothing over /proc/driver")


def parse(text: str) -> InventoryGpu | None:
    """The GPU of one file; None as long as the driver does not know its UUID."""
    pairs = (line.partition(":") for line in text.splitlines())
    values = {key.strip(): value.strip() for key, _, value in pairs}
    uuid, minor = values.get("GPU UUID", ""), values.get("Device Minor", "")
    if not _UUID.fullmatch(uuid):
        return None
    return InventoryGpu(uuid=uuid, device=f"nvidia{int(minor)}" if minor.isascii() and minor.isdigit() else "")


def read(folder: Path) -> tuple[InventoryGpu, ...] | None:
    """The GPUs of all files, by bus location; None where there is no such folder.

    Raises:
        OSError: the folder, or the file of a GPU that is still there, cannot be read.
    """
    try:
        locations = sorted(islice(folder.iterdir(), MOST_GPUS))
    except FileNotFoundError:
        return None
    gpus = []
    for location in locations:
        try:
            with (location / "information").open("rb") as file:
                gpus.append(parse(file.read(MOST_BYTES).decode("utf-8", "replace")))
        except FileNotFoundError:
            continue  # it fell off the bus since the folder was listed
    return tuple(gpu for gpu in gpus if gpu)


class DriverInventory:
    """The inventory as the driver knows it, read again every minute. Where there is no driver, nobody misses it."""

    name = NAME
    patience_seconds = PATIENCE_SECONDS
    bounds: Mapping[str, Bound] = MappingProxyType({})

    def __init__(self, *, folder: str, on_health: OnHealth, clock: Callable[[], float] = time.monotonic) -> None:
        self.inventory = Inventory()
        self._folder = Path(folder)
        self._clock = clock
        self._attempts = Attempts(NAME, on_health)
        self._read_at: float | None = None
        self._is_there = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def health(self) -> Health:
        """How the last read went; that of an absent source where there is no driver."""
        return self._attempts.health if self._is_there else _ABSENT

    def begin(self) -> Attempt | None:
        """Read the files if they are due; only the first read is worth waiting for."""
        is_due = self._read_at is None or self._clock() - self._read_at >= AGAIN_SECONDS
        if is_due and (self._reading is None or self._reading.done()):
            self._reading = asyncio.create_task(self._read())
        return self._reading if self._read_at is None else None

    async def close(self) -> None:
        """Wait for nobody: a thread that reads ends with its read."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        started = self._clock()
        error: SourceError | None = None
        try:
            gpus = await asyncio.to_thread(read, self._folder)
        except OSError as why:
            gpus = self.inventory.gpus
            error = Unavailable(
                "permission",
                f"{self._folder} cannot be read: {why.strerror or why}",
                remedy="is the driver well (nvidia-smi, the kernel's log)? Until then the last good read counts",
            )
        self._read_at = self._clock()
        self._is_there = gpus is not None
        if gpus is not None:
            self._attempts.note(error, took_seconds=self._clock() - started, now_seconds=time.time())
        if (gpus or ()) != self.inventory.gpus:
            self.inventory = Inventory(gpus=gpus or ())
