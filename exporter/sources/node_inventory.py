"""The node's inventory, put together from the sources that know parts of it: a user's file, the driver, CDI specs.

Tests: tests/ownership/test_one_claim_of_many.py.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from exporter import log
from exporter.config.files import identity_of, read_structured
from exporter.errors import ConfigError, Malformed, SourceError, Unavailable
from exporter.model.devices import Inventory, InventoryDoubt
from exporter.model.memo import Memo
from exporter.ownership.inventories import SourceInventory, places_among, put_together, read_inventory
from exporter.reading import Invalid
from exporter.sources.source import NO_BOUNDS, AskedSource, Attempt, NoSource, OnHealth, Source, absent

if TYPE_CHECKING:
    from exporter.model.driver import DriverReading

FLAG = "--inventory.file"


class InventorySource(Source, Protocol):
    """A source that has an inventory. `Inventories` puts several together."""

    @property
    def inventory(self) -> Inventory:
        """The present inventory; the same object as long as nothing changed."""


class DriverSource(InventorySource, Protocol):
    """A source of an inventory that also lists processes."""

    def __hash__(self) -> int:
        """The hash of the object itself."""

    @property
    def reading(self) -> "DriverReading | None":
        """The last reading; None before the first. Its processes are None while the source fails."""

    @property
    def followers(self) -> "list[Callable[[DriverReading], None]]":
        """The functions that are called with each new reading that did not fail, in the event loop."""


class NoInventory(NoSource):
    """The placeholder of an inventory, if no setting asks for one."""

    inventory = Inventory()

    def __init__(self) -> None:
        super().__init__("inventory", absent("no inventory is asked for", "name a file with --inventory.file"))


class Inventories:
    """Puts the inventories of its `parts` together. The parts are sources with their own health; this is no source."""

    def __init__(self, parts: Sequence[InventorySource], user: InventorySource | None = None) -> None:
        """`parts` are in order of trust, the best first. `user` is the part, if any, that wins over all others."""
        self.parts = self.shown = self.begun = tuple(parts)
        self._user = user
        self._inventory = Memo(Inventory())
        self._logged: frozenset[InventoryDoubt] = frozenset()

    @property
    def inventory(self) -> Inventory:
        """The inventory of all parts; the same object as long as no part changed."""
        return self._inventory.of(self._put_together, *[part.inventory for part in self.parts])

    def _put_together(self, *parts: Inventory) -> Inventory:
        before: tuple[Inventory, ...] = self._inventory.inputs
        if [(part.gpus, part.doubts) for part in parts] == [(part.gpus, part.doubts) for part in before]:
            # a claim came or went, and changed nothing but places
            return replace(self._inventory.value, places=places_among(parts))
        inventory = put_together(
            [
                SourceInventory(name=source.name, inventory=part, wins=source is self._user)
                for source, part in zip(self.parts, parts, strict=True)
            ]
        )
        self._tell(inventory)
        return inventory

    def _tell(self, inventory: Inventory) -> None:
        """Log each doubt once as long as it lasts."""
        doubts = frozenset(inventory.doubts)
        for doubt in sorted(doubts - self._logged, key=lambda doubt: doubt.trouble.message):
            log.warning("the inventory is in doubt", says=doubt.trouble.message, remedy=doubt.trouble.remedy)
        self._logged = doubts


class InventoryFile(AskedSource):
    """A user's file. `inventory` is its last usable version, the same object until the file changes."""

    patience_seconds = 0.0
    bounds = NO_BOUNDS

    def __init__(self, *, path: str, on_health: OnHealth) -> None:
        """Read the file. Raises ConfigError, with one line: it cannot be used."""
        super().__init__(f"file:{path}", on_health)
        self._path = path
        self._read_as = identity_of(self._path)
        with self._attempts.noted():
            self.inventory = self._read()

    async def close(self) -> None:
        """Do nothing: no attempt is ever in flight."""

    def begin(self) -> Attempt | None:
        """Read the file at once if it has changed. It is small, so there is no attempt to wait for."""
        identity = identity_of(self._path)
        if identity != self._read_as:
            self._read_as = identity
            with suppress(SourceError), self._attempts.noted():
                try:
                    self.inventory = self._read()
                except ConfigError as error:
                    kept = "until then the last good content stays in force"
                    if identity is None:
                        raise Unavailable("missing", str(error), remedy=f"mount the file again; {kept}") from error
                    raise Malformed("garbage", str(error), remedy=f"mend the file; {kept}") from error
        return None

    def _read(self) -> Inventory:
        content = read_structured(self._path, FLAG)
        try:
            return read_inventory(content)
        except Invalid as error:
            raise ConfigError(f"{FLAG}: {self._path!r}: {error}") from error
