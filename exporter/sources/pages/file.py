"""A `.prom` file of GPU samples, as the shell version of dcgm-exporter and node-exporter's collectors write it.

Such a file is written beside its path and renamed into place, so whoever opens it has a whole one. A writer that does
not rename is caught where it can be: a file without a last newline, one that changes while it is read, and one that was
touched in place a moment ago are not served.
"""

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar

from exporter.config.regular import open_regular
from exporter.errors import Malformed, SourceError, Unavailable
from exporter.exposition.check import has_sample, why_too_large
from exporter.model.pages import Page
from exporter.model.snapshot import Health
from exporter.sources.single_flight import SingleFlight
from exporter.sources.slices import in_slices
from exporter.sources.source import Attempts, Bound, OnHealth

# A file that was written in place is left alone for this long after its last change.
SETTLED_SECONDS = 0.2
_TRIES = 5
_WRITE_LESS = "have its writer write less: one page holds the samples of one node"


class PromFileSource:
    """One file. It is read when it changed; otherwise the page of last time is served again."""

    is_kept = True
    patience_seconds = None
    bounds: Mapping[str, Bound] = MappingProxyType({})
    if_slow: ClassVar[str] = "is it on a file system that answers slowly? Write it to one of this machine"

    def __init__(
        self,
        *,
        path: str,
        max_age_seconds: float,
        max_bytes: int,
        on_health: OnHealth,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_age_seconds` counts from the file's modification time to `clock`, in seconds since 1970."""
        self.name = f"file:{path}"
        self.page: Page | None = None  # the newest one
        self._path = Path(path)
        self._max_age_seconds = max_age_seconds
        self._max_bytes = max_bytes
        self._attempts = Attempts(self.name, on_health)
        self._clock = clock
        self._flight = SingleFlight(self._read)
        self._read_as: os.stat_result | None = None
        self._age_when_read = self._read_at = 0.0

    @property
    def health(self) -> Health:
        """How the last read went."""
        return self._attempts.health

    async def close(self) -> None:
        """End the read in flight."""
        await self._flight.close()

    def begin(self) -> asyncio.Task[Page]:
        """The read in flight, or a new one. Its result is the page, whole.

        The task raises:
            Unavailable: there is no such file, it may not be read, or it is too old.
            Malformed: half written, larger than the limit, or without one valid sample.
        """
        return self._flight.begin()

    def wait(self, seconds: float | None) -> Coroutine[None, None, None]:
        """Until the read in flight has ended, no longer than `seconds`."""
        return self._flight.wait(seconds)

    async def _read(self) -> Page:
        started = time.monotonic()
        try:
            page = await self._current()
        except SourceError as error:
            self._note(started, error)
            raise
        self._note(started, None)
        return page

    def _note(self, started: float, error: SourceError | None) -> None:
        self._attempts.note(error, took_seconds=time.monotonic() - started, now_seconds=self._clock())

    async def _current(self) -> Page:
        for _ in range(_TRIES):
            try:
                page = await self._look()
            except FileNotFoundError as error:
                raise Unavailable(
                    "missing", f"{self._path} does not exist", remedy="name the file that is written, with --dcgm.file"
                ) from error
            except OSError as error:
                raise Unavailable(
                    "permission",
                    f"{self._path} cannot be read: {error.strerror}",
                    remedy="let the user that this program runs as read it",
                ) from error
            if page is not None:
                return page
            await asyncio.sleep(SETTLED_SECONDS / 2)
        raise Malformed("truncated", f"{self._path} is being written", remedy="its writer should rename it into place")

    async def _look(self) -> Page | None:
        """The page; None while the file changes in place."""
        with open_regular(self._path) as file:
            before = os.fstat(file.fileno())
            age = self._age_of(before)
            if age > self._max_age_seconds:
                raise Unavailable(
                    "stale",
                    f"{self._path} was last written {age:.0f} s ago",
                    remedy="is the file's writer running? One that writes seldom needs a longer --dcgm.file-max-age",
                )
            if self.page is not None and self._read_as is not None and _same(self._read_as, before):
                return self.page
            body = file.read(self._max_bytes + 1)
            after = os.fstat(file.fileno())
        if len(body) > self._max_bytes:
            raise Malformed(
                "oversize",
                f"{self._path} is larger than --dcgm.max-bytes {self._max_bytes}",
                remedy=f"raise --dcgm.max-bytes, or {_WRITE_LESS}",
            )
        renamed = self._read_as is not None and before.st_ino != self._read_as.st_ino
        if not _same(before, after) or not (renamed or age >= SETTLED_SECONDS):
            return None
        if body and not body.endswith(b"\n"):
            return None
        too_large = why_too_large(body)
        if too_large:
            raise Malformed("oversize", f"{self._path} has {too_large}", remedy=_WRITE_LESS)
        if not await in_slices(has_sample(body)):
            raise Malformed(
                "no_samples",
                f"{self._path} has not one valid sample",
                remedy="is this the file that GPU samples are written to? Name it with --dcgm.file",
            )
        self.page = Page(source=self.name, body=body, read_at_seconds=before.st_mtime, moment=time.monotonic())
        self._read_as = before
        self._age_when_read, self._read_at = age, time.monotonic()
        return self.page

    def _age_of(self, status: os.stat_result) -> float:
        """Seconds since the file was written. Of one that is known, by a clock that never steps."""
        if self._read_as is not None and _same(self._read_as, status):
            return self._age_when_read + time.monotonic() - self._read_at
        return max(0.0, self._clock() - status.st_mtime)


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_size, one.st_mtime_ns) == (other.st_ino, other.st_size, other.st_mtime_ns)
