"""The source of the machine: the version of NVIDIA's driver, the kernel, and the driver's device files.

The first line of /proc/driver/nvidia/version names the module, proprietary or open, and then its version:

    NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023
    NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  555.42.06  Release Build  (abuild@host)  Thu Jul 11 …

In a container, too, the kernel is the machine's.
"""

import asyncio
import os
import time
from pathlib import Path

from exporter.model.driver import DeviceFile, Host
from exporter.model.snapshot import Health
from exporter.sources.polled import Polled
from exporter.sources.single_flight import Worker
from exporter.sources.source import Clock, OnHealth, absent

NAME = "host"
VERSION = "proc/driver/nvidia/version"
# a driver may be exchanged while the exporter runs, but seldom is
AGAIN_SECONDS = 60.0
ANSWER_SECONDS = 2.0
MOST_BYTES = 4096
MOST_CHARS = 32
_DIGITS = frozenset("0123456789.")
_SAYS_NOTHING = absent("no samples and no owners come from here", "nothing")
_Files = tuple[DeviceFile, ...] | None


def version_in(text: str) -> str:
    """The driver's version in this text; "" if the text has none."""
    first, _, after = text.partition("\n")[0].partition(" Kernel Module ")
    words = after.split() if first.startswith("NVRM version:") else []
    return next((word for word in words if "." in word and _DIGITS.issuperset(word)), "")[:MOST_CHARS]


def read_version(root: Path) -> str:
    """The driver's version; "" if no driver is loaded, or the file cannot be read."""
    try:
        with (root / VERSION).open("rb") as file:
            return version_in(file.read(MOST_BYTES).decode("utf-8", "replace"))
    except OSError:
        return ""


class HostSource(Polled):
    """The machine as it was at most a minute ago. This source never fails: it leaves out facts that it cannot read.

    `host` is None before the first read, and the same object as long as nothing changed.
    """

    def __init__(self, *, root: str, on_health: OnHealth, clock: Clock = time.monotonic) -> None:
        super().__init__(NAME, on_health, again_seconds=AGAIN_SECONDS, placeholder=_SAYS_NOTHING, clock=clock)
        self.host: Host | None = None
        self._root = Path(root)
        self._worker: Worker[_Files] = Worker("device-files")
        self._asked: asyncio.Future[_Files] | None = None

    async def close(self) -> None:
        """End the looks. The thread ends with its present read; nobody waits for it."""
        await super().close()
        self._worker.close(lambda: None)

    async def device_files(self) -> _Files:
        """The driver's present device files; None if no driver is loaded, or no answer comes in time."""
        if self._asked is None or self._asked.done():
            answered: asyncio.Future[_Files] = asyncio.get_running_loop().create_future()

            def done(result: _Files | Exception) -> None:
                answered.set_result(None if isinstance(result, Exception) else result)

            self._asked = answered
            self._worker.begin(self._look_at_files, done)
        # all callers that ask meanwhile get the same answer
        asked = self._asked
        await asyncio.wait((asked,), timeout=ANSWER_SECONDS)
        return asked.result() if asked.done() else None

    def _look_at_files(self) -> _Files:
        from exporter.sources.host.device_files import look  # noqa: PLC0415 - only doctor asks

        return look(self._root)

    async def _look(self) -> Health:
        version = await asyncio.to_thread(read_version, self._root)
        uname = os.uname()
        host = Host(driver_version=version, kernel=uname.release, architecture=uname.machine)
        if host != self.host:
            self.host = host
        return _SAYS_NOTHING
