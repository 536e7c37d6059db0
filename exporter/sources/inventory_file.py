"""The inventory of the node's GPUs from a file (`--inventory.file`), read again when it changes."""

import time
from collections.abc import Callable

from exporter.attribution.inventory import read_inventory
from exporter.config.files import identity_of, read_structured
from exporter.errors import ConfigError, Malformed, SourceError, Unavailable
from exporter.model.devices import Inventory
from exporter.model.snapshot import Health
from exporter.sources.attempt import health_after

FLAG = "--inventory.file"


class InventoryFile:
    """One file. A version of it that cannot be used is refused, and the last good one stays in force."""

    def __init__(self, *, path: str, on_health: Callable[[str, Health], None]) -> None:
        """Read it.

        Raises:
            ConfigError: it cannot be used: one line.
        """
        self.name = f"file:{path}"
        self.health = Health()
        self._path = path
        self._on_health = on_health
        self._read_as = identity_of(self._path)
        self.inventory = self._read()
        self._note(None, time.monotonic())

    async def close(self) -> None:
        """Nothing is in flight."""

    def refresh(self) -> Inventory:
        """What is in force: the file's content, read if it changed since. The same object as long as it did not."""
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
        return self.inventory

    def _note(self, error: SourceError | None, started: float) -> None:
        self.health = health_after(self.health, error, took_seconds=time.monotonic() - started, now_seconds=time.time())
        self._on_health(self.name, self.health)

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
