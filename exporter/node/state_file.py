"""The file of --accounting.state: read once when it is taken up, then replaced after each look of the pulse.

The new file is written beside the old one, synced and renamed, so that a process that is killed leaves the old file
whole. accounts/state_bytes.py knows the content. A file that cannot be used is set aside and never overwritten.
"""

import os
import tempfile
import time
from pathlib import Path

from exporter import log
from exporter.config.files import open_regular
from exporter.errors import ConfigError, SourceError, TimedOut, Unavailable
from exporter.sources.source import AskedSource, OnHealth
from exporter.threads import within

FLAG = "--accounting.state"
# the largest number of accounts with the usual labels takes less
MOST_BYTES = 64 * 1024 * 1024
READ_SECONDS = 5.0
SET_ASIDE = ".unusable"


def check_place(path: str) -> None:
    """Raises ConfigError: the folder of the file does not exist, or something else than a file is there."""
    place = Path(path)
    try:
        has_folder = place.parent.is_dir()
        is_other = place.exists() and not place.is_file()
    except OSError:
        return  # reading and writing will tell if a missing right or the disk prevents them
    if not has_folder:
        raise ConfigError(f"{FLAG}: {path!r} is not allowed; its folder does not exist: make it, or mount it")
    if is_other:
        raise ConfigError(f"{FLAG}: {path!r} is not allowed; it is no file")


class StateFile(AskedSource):
    """One state file. Outputs show its health like that of a source, beside other failures."""

    def __init__(self, path: str, on_health: OnHealth) -> None:
        self.path = path
        super().__init__(f"file:{path}", on_health)
        self._place = Path(path)

    def take_up(self) -> bytes | None:
        """The file's content; None if it is missing or cannot be read.

        Also removes a file that a killed process left beside it. Raises ConfigError: the disk hangs. To begin anew
        would overwrite accounts that nobody has read.
        """
        try:
            return within(READ_SECONDS, self._take_up)
        except TimeoutError:
            raise ConfigError(
                f"{FLAG}: {self.path!r} has not been read for {READ_SECONDS:g} s; is it on a file system that hangs,"
                " such as one of another machine? Name a file on a local disk"
            ) from None

    def _take_up(self) -> bytes | None:
        """The bytes of the file; None if there is none, or it was set aside. Removes what a killed writer left."""
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
        """Rename the file, in place of an earlier renamed file, so that people can look at it.

        The accounts begin anew.
        """
        aside = self._place.with_name(f"{self._place.name}{SET_ASIDE}")
        try:
            self._place.replace(aside)
        except OSError as error:
            log.warning("state cannot be used, nor set aside", path=self.path, why=why, error=error.strerror)
        else:
            log.warning("state cannot be used: set aside, counters begin anew", path=str(aside), why=why)

    def write(self, body: bytes) -> SourceError | None:
        """Replace the file, or return why not.

        It waits for the disk, so call it in a thread; call `note` in the event loop.
        """
        try:
            descriptor, name = tempfile.mkstemp(
                prefix=f".{self._place.name}.", suffix=".new", dir=self._place.parent
            )  # readable only by its owner
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
        """Note the outcome of `write`. The log tells when writing begins to fail, and when it works again."""
        self._attempts.note(error, took_seconds=took_seconds, now_seconds=time.time())

    def note_slow(self, seconds: float) -> None:
        """Note that a write is not done after this time."""
        slow = TimedOut(
            f"{self.path} has been written for more than {seconds:g} s; counters are kept in memory alone",
            remedy="is it on a file system that hangs, such as one of another machine? Name a file on a local disk",
        )
        self.note(slow, seconds)
