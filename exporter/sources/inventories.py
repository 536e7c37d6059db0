"""The node's one inventory, of all the sources that know a part of it."""

import logging
from collections.abc import Sequence

from exporter.attribution.current import same
from exporter.attribution.inventories import Part, put_together
from exporter.log import log
from exporter.model.devices import Inventory, InventoryDoubt
from exporter.sources.any_inventory import InventorySource


class Inventories:
    """Puts together what its `parts` know. They are sources, each with its own health; this is none."""

    def __init__(self, parts: Sequence[InventorySource], user: InventorySource | None = None) -> None:
        """The best part first. `user` is the part that wins where it speaks, if it is there."""
        self.parts = tuple(parts)
        self._user = user
        self._made_of: tuple[Inventory, ...] = ()
        self._inventory = Inventory()
        self._told: frozenset[InventoryDoubt] = frozenset()

    @property
    def inventory(self) -> Inventory:
        """The one in force; the same object as long as no part knows anything else."""
        known = tuple([part.inventory for part in self.parts])
        if not same(known, self._made_of):
            self._made_of = known
            self._inventory = put_together(
                [
                    Part(name=part.name, inventory=inventory, wins=part is self._user)
                    for part, inventory in zip(self.parts, known, strict=True)
                ]
            )
            self._tell()
        return self._inventory

    def _tell(self) -> None:
        """Log each doubt once, as long as it lasts."""
        doubts = frozenset(self._inventory.doubts)
        for doubt in sorted(doubts - self._told, key=lambda doubt: doubt.says):
            log(logging.WARNING, "the inventory is in doubt", says=doubt.says, remedy=doubt.remedy)
        self._told = doubts
