"""NVML as the source of the page of GPU samples, in dcgm-exporter's place (--dcgm.mode off).

The page is made with each reading, on NVML's thread. Whoever asks gets the one of the reading that runs, or that ended
a moment ago; a reading takes milliseconds. While NVML hangs or fails the source fails, as one does whose URL does not
answer: samples of a while ago are not told as those of now.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from exporter.model.pages import Page
from exporter.model.snapshot import Health
from exporter.sources.nvml import source
from exporter.sources.nvml.source import NAME, Nvml
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import Bound, OnHealth

if TYPE_CHECKING:
    from exporter.model.driver import DriverReading


class NvmlPage:
    """The page of the last reading of `nvml`, which makes pages."""

    name = NAME
    is_kept = False
    patience_seconds = None
    bounds: Mapping[str, Bound] = MappingProxyType({})
    if_slow: ClassVar[str] = "a GPU may have fallen off the bus: look at the kernel's log (dmesg | grep -e NVRM -e Xid)"

    def __init__(self, *, nvml: Nvml, on_health: OnHealth) -> None:  # noqa: ARG002 - NVML tells its health itself
        self.page: Page | None = None
        self._nvml = nvml
        self._of: DriverReading | None = None
        self._flight = SingleFlight(self._read, source.DEADLINE_SECONDS)

    @property
    def health(self) -> Health:
        """NVML's own: one source, and one health."""
        return self._nvml.health

    async def close(self) -> None:
        """End the wait in flight. NVML is closed by itself."""
        await self._flight.close()

    def begin(self) -> asyncio.Task[Page]:
        """The wait in flight, or a new one. Its result is the page, whole.

        The task raises:
            SourceError: what NVML failed by, or that it does not come back.
        """
        return self._flight.begin()

    def wait(self, seconds: float | None) -> Coroutine[None, None, None]:
        """Until the wait in flight has ended, no longer than `seconds`."""
        return self._flight.wait(seconds)

    async def _read(self) -> Page:
        self._nvml.begin()
        try:
            await self._nvml.ended()
        except asyncio.CancelledError:
            if not self._flight.timed_out:
                raise
            self._nvml.give_up()
        failure, reading = self._nvml.failure, self._nvml.reading
        if failure is not None:
            raise failure.with_traceback(None)
        assert reading is not None, "a reading that ended came or failed"  # noqa: S101 - a fault of this program
        if self.page is None or self._of is not reading:
            self._of = reading
            ago = time.monotonic() - reading.read_at
            self.page = Page(
                source=NAME, body=self._nvml.page, read_at_seconds=time.time() - ago, moment=reading.read_at
            )
        return self.page
