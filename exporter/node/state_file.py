"""The file of --accounting.state: read once when it is taken up, then replaced after each look of the pulse.

It is written beside its place, synced and renamed, so that whoever is killed in between leaves the old one whole. What
it holds is accounting's business (accounting/state.py). A file that cannot be used is set aside and never overwritten.
"""

import logging
import os
import tempfile
import time
from pathlib import Path

from exporter.config.regular import open_regular
from exporter.errors import ConfigError, SourceError, TimedOut, Unavailable
from exporter.log import log
from exporter.model.snapshot import Health
from exporter.sources.source import Attempts, OnHealth
from exporter.threads import within

FLAG = "--accounting.state"
# as many accounts as there may be, each with as many labels as usual, take less
MOST_BYTES = 64 * 1024 * 1024
READ_SECONDS = 5.0
SET_ASIDE = ".unusable"


def check_place(path: str) -> None:
    """Refuse what no file can be written to.

    Raises:
        ConfigError: its folder does not exist, or something else than a file is there.
    """
    place = Path(path)
    try:
        has_folder, is_other = place.parent.is_dir(), place.exists() and not place.is_file()
    except OSError:
        return  # what a right or the disk is in the way of is said when it is read and written
    if not has_folder:
        raise ConfigError(f"{FLAG}: {path!r} is not allowed; its folder does not exist: make it, or mount it")
    if is_other:
        raise ConfigError(f"{FLAG}: {path!r} is not allowed; it is no file")


class StateFile:
    """One file. Its health is shown as that of a source, so that a full disk is seen where other failures are."""

    def __init__(self, path: str, on_health: OnHealth) -> None:
        self.path = path
        self.name = f"file:{path}"
        self._place = Path(path)
        self._attempts = Attempts(self.name, on_health)

    @property
    def health(self) -> Health:
        """How the last writing went."""
        return self._attempts.health

    def take_up(self) -> bytes | None:
        """What it holds; None where there is none that can be read. Removes what a killed process left beside it.

        Raises:
            ConfigError: the disk hangs. To begin anew would be to overwrite what nobody has read.
        """
        try:
            return within(READ_SECONDS, self._take_up)
        except TimeoutError:
            raise ConfigError(
                f"{FLAG}: {self.path!r} has not been read for {READ_SECONDS:g} s; is it on a file system that hangs,"
                " such as one of another machine? Name a file on a local disk"
            ) from None

    def _take_up(self) -> bytes | None:
        for left in self._place.parent.glob(f".{self._place.name}.*.new"):
            left.unlink(missing_ok=True)
        try:
            with open_regular(self._place) as file:
                body = file.read(MOST_BYTES + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self.set_aside(f"it cannot be read: {error.strerror}")
            return None
        if len(body) > MOST_BYTES:
            self.set_aside(f"it is larger than {MOST_BYTES} bytes")
            return None
        return body

    def set_aside(self, why: str) -> None:
        """Keep it under another name, for people: the accounts begin anew. One of before is replaced."""
        aside = self._place.with_name(f"{self._place.name}{SET_ASIDE}")
        try:
            self._place.replace(aside)
        except OSError as error:
            log(logging.WARNING, "state cannot be used, nor set aside", path=self.path, why=why, error=error.strerror)
        else:
            log(logging.WARNING, "state cannot be used: set aside, counters begin anew", path=str(aside), why=why)

    def write(self, body: bytes) -> SourceError | None:
        """Replace it, or say why not. It waits for the disk: it is for a thread. `note` is for the event loop."""
        try:
            descriptor, name = tempfile.mkstemp(
                prefix=f".{self._place.name}.", suffix=".new", dir=self._place.parent
            )  # readable by its owner alone
            beside = Path(name)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(body)
                    file.flush()
                    os.fsync(file.fileno())
                beside.replace(self._place)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            return Unavailable(
                "unwritable",
                f"{self.path} cannot be written: {error.strerror}; counters are kept in memory alone",
                remedy="is the disk full, or mounted read-only? A restart loses what was counted since",
            )
        return None

    def note(self, error: SourceError | None, took_seconds: float) -> None:
        """What came of `write`. It is logged when it begins to fail, and when it works again."""
        self._attempts.note(error, took_seconds=took_seconds, now_seconds=time.time())

    def note_slow(self, seconds: float) -> None:
        """It is still being written, after so long."""
        slow = TimedOut(
            "deadline",
            f"{self.path} has been written for more than {seconds:g} s; counters are kept in memory alone",
            remedy="is it on a file system that hangs, such as one of another machine? Name a file on a local disk",
        )
        self.note(slow, seconds)
