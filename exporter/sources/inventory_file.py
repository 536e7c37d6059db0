"""The inventory of the node's GPUs from a file (`--inventory.file`), read again when it changes."""

import time
from collections.abc import Mapping
from types import MappingProxyType

from exporter.attribution.inventory import read_inventory
from exporter.config.files import identity_of, read_structured
from exporter.errors import ConfigError, Malformed, SourceError, Unavailable
from exporter.model.devices import Inventory
from exporter.model.snapshot import Health
from exporter.sources.source import Attempt, Attempts, Bound, OnHealth

FLAG = "--inventory.file"
_NO_BOUNDS: Mapping[str, Bound] = MappingProxyType({})


class InventoryFile:
    """One file. A version of it that cannot be used is refused, and the last good one stays in force.

    `inventory` is the one in force: the same object as long as the file did not change.
    """

    patience_seconds = 0.0
    bounds = _NO_BOUNDS

    def __init__(self, *, path: str, on_health: OnHealth) -> None:
        """Read it.

        Raises:
            ConfigError: it cannot be used: one line.
        """
        self.name = f"file:{path}"
        self._path = path
        self._attempts = Attempts(self.name, on_health)
        self._read_as = identity_of(self._path)
        self.inventory = self._read()
        self._note(None, time.monotonic())

    @property
    def health(self) -> Health:
        """How the last read went."""
        return self._attempts.health

    async def close(self) -> None:
        """Nothing is in flight."""

    def begin(self) -> Attempt | None:
        """Read the file if it has changed; it is small, so nobody has to wait."""
        found = identity_of(self._path)
        if found != self._read_as:
            self._read_as = found
            started = time.monotonic()
            try:
                self.inventory = self._read()
            except ConfigError as error:
                self._note(_refused(error, is_gone=found is None), started)
            else:
                self._note(None, started)
        return None

    def _note(self, error: SourceError | None, started: float) -> None:
        self._attempts.note(error, took_seconds=time.monotonic() - started, now_seconds=time.time())

    def _read(self) -> Inventory:
        content = read_structured(self._path, FLAG)
        try:
            return read_inventory(content)
        except ValueError as error:
            raise ConfigError(f"{FLAG}: {self._path!r}: {error}") from error


def _refused(error: ConfigError, *, is_gone: bool) -> SourceError:
    kept = "until then the last good content stays in force"
    if is_gone:
        return Unavailable("missing", str(error), remedy=f"mount the file again; {kept}")
    return Malformed("garbage", str(error), remedy=f"mend the file; {kept}")
