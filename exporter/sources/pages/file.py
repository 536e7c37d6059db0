"""The source of a `.prom` file of GPU samples, as dcgm-exporter's shell version and node-exporter's scripts write it.

A good writer writes the file beside its path and renames it into place, so that a reader gets a whole file. A file that
is written in place is not served while it changes, until SETTLED_SECONDS after its last change, or without a last
newline.
"""

import asyncio
import os
import time
from pathlib import Path
from typing import ClassVar

from exporter.config.files import open_regular
from exporter.errors import Malformed, Trouble, Unavailable
from exporter.exposition.check import has_sample, why_too_large
from exporter.exposition.units import UtilizationUnit
from exporter.exposition.vendor_pages import Vendor, VendorPages
from exporter.model.pages import Page
from exporter.sources.long_work import in_slices
from exporter.sources.single_flight import SingleFlight
from exporter.sources.source import NO_BOUNDS, AskedSource, Clock, OnHealth

# A file that was written in place is not read for this long after its last change.
SETTLED_SECONDS = 0.2
_TRIES = 5
_WRITE_LESS = "have its writer write less: one page holds the samples of one node"


class PromFileSource(AskedSource):
    """A file. It is read again if it has changed; otherwise its last page is served again.

    A read raises Unavailable if the file does not exist, cannot be read, or is too old; Malformed if it is half
    written, larger than the limit, or without any valid sample.

    Args:
        path: the path of the file.
        max_age_seconds: the largest age, from the file's modification time to `clock`.
        max_bytes: the largest size.
        on_health: see `Attempts`.
        vendor: another vendor, whose pages gain DCGM's families; None for NVIDIA.
        clock: seconds since 1970.
    """

    is_kept = True
    patience_seconds = None
    bounds = NO_BOUNDS
    if_slow: ClassVar[str] = "is it on a file system that answers slowly? Write it to one of this machine"

    def __init__(
        self,
        *,
        path: str,
        max_age_seconds: float,
        max_bytes: int,
        on_health: OnHealth,
        vendor: Vendor | None = None,
        clock: Clock = time.time,
    ) -> None:
        super().__init__(f"file:{path}", on_health)
        self.page: Page | None = None  # the newest page
        self._path = Path(path)
        self._max_age_seconds = max_age_seconds
        self._max_bytes = max_bytes
        self._clock = clock
        self._vendor_pages = VendorPages(vendor) if vendor else None
        self._unit = UtilizationUnit()
        self._odd: list[Trouble] = []  # about the newest page
        self._flight = SingleFlight(self._read)
        self.begin = self._flight.begin
        self.wait = self._flight.wait
        self.close = self._flight.close
        self._read_as: os.stat_result | None = None
        self._age_when_read = self._read_at = 0.0

    async def _read(self) -> Page:
        with self._attempts.noted(self._clock) as odd:
            page = await self._current()
            odd.extend(self._odd)
        return page

    async def _current(self) -> Page:
        """The page of the file once it is whole. Raises SourceError: it cannot be read, or is never whole."""
        for _ in range(_TRIES):
            try:
                page = await self._look()
            except FileNotFoundError as error:
                remedy = "name the file that is written, with --dcgm.file"
                raise Unavailable("missing", f"{self._path} does not exist", remedy=remedy) from error
            except OSError as error:
                message = f"{self._path} cannot be read: {error.strerror}"
                remedy = "let the user that this program runs as read it"
                raise Unavailable("permission", message, remedy=remedy) from error
            if page is not None:
                return page
            await asyncio.sleep(SETTLED_SECONDS / 2)
        raise Malformed("truncated", f"{self._path} is being written", remedy="its writer should rename it into place")

    async def _look(self) -> Page | None:
        """The file's page; None while the file changes in place."""
        with open_regular(self._path) as file:
            before = os.fstat(file.fileno())
            age = self._age_of(before)
            if age > self._max_age_seconds:
                remedy = "is the file's writer running? One that writes seldom needs a longer --dcgm.file-max-age"
                raise Unavailable("stale", f"{self._path} was last written {age:.0f} s ago", remedy=remedy)
            if self.page is not None and self._read_as is not None and _same(self._read_as, before):
                return self.page
            body = file.read(self._max_bytes + 1)
            after = os.fstat(file.fileno())
        if len(body) > self._max_bytes:
            message = f"{self._path} is larger than --dcgm.max-bytes {self._max_bytes}"
            raise Malformed("oversize", message, remedy=f"raise --dcgm.max-bytes, or {_WRITE_LESS}")
        renamed = self._read_as is not None and before.st_ino != self._read_as.st_ino
        is_whole = _same(before, after) and (renamed or age >= SETTLED_SECONDS)
        if not is_whole or (body and not body.endswith(b"\n")):
            return None
        if too_large := why_too_large(body):
            raise Malformed("oversize", f"{self._path} has {too_large}", remedy=_WRITE_LESS)
        if not await in_slices(has_sample(body)):
            remedy = "is this the file that GPU samples are written to? Name it with --dcgm.file"
            raise Malformed("no_samples", f"{self._path} has not one valid sample", remedy=remedy)
        self._odd = []
        if self._vendor_pages:
            body = await in_slices(self._vendor_pages.with_dcgm(body, self._odd))
        as_it_came = body
        body = self._unit.settle(as_it_came, self._odd)
        self.page = Page(
            source=self.name,
            body=body,
            read_at_seconds=before.st_mtime,
            moment=time.monotonic(),
            as_it_came=as_it_came,
        )
        self._read_as = before
        self._age_when_read = age
        self._read_at = time.monotonic()
        return self.page

    def _age_of(self, status: os.stat_result) -> float:
        """Seconds since the file was written. After the first read a clock that never steps counts them."""
        if self._read_as is not None and _same(self._read_as, status):
            return self._age_when_read + time.monotonic() - self._read_at
        return max(0.0, self._clock() - status.st_mtime)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)
