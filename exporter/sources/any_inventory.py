"""A source that knows the node's GPUs, or some of them: a file, the driver, CDI specs."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from exporter.model.devices import Inventory
from exporter.sources.source import Attempt, Bound, Source, absent

if TYPE_CHECKING:
    from exporter.model.driver import DriverReading


class InventorySource(Source, Protocol):
    """What one source knows; inventories.py puts several together."""

    @property
    def inventory(self) -> Inventory:
        """The one in force; the same object as long as nothing changed."""


class DriverSource(InventorySource, Protocol):
    """A source of an inventory that tells of processes, too."""

    def __hash__(self) -> int:
        """That of the object."""

    @property
    def reading(self) -> "DriverReading | None":
        """The last one; None before the first. Its processes are None while the source fails."""

    def follow(self, hears: "Callable[[DriverReading], None]") -> None:
        """From now on this, too, hears of each new reading, in the event loop; not of one that failed."""

    def unfollow(self, hears: "Callable[[DriverReading], None]") -> None:
        """From now on this hears nothing more."""


class NoInventory:
    """In place of an inventory where none is asked for."""

    name = "inventory"
    health = absent("no inventory is asked for", "name a file with --inventory.file")
    patience_seconds = 0.0
    bounds: Mapping[str, Bound] = MappingProxyType({})
    inventory = Inventory()

    def begin(self) -> Attempt | None:
        """Nothing is there to be read."""

    async def close(self) -> None:
        """Nothing is in flight."""
