"""GPUs of which allocators granted more than there is: HAMi and Volcano may do so (deviceMemoryScaling). Pure.

Tests: tests/outputs/test_granted.py.
"""

from collections.abc import Mapping

from exporter.accounts.device_values import FAMILIES_OF_MEMORY, DeviceValues
from exporter.dividing.granted_parts import part_of
from exporter.model.devices import DeviceKey, Owners
from exporter.model.pages import JoinedPage
from exporter.model.slices import at_once

# A page may lack the memory that the driver keeps for itself, so that all of a GPU seems to be a little more than it.
_LEAST = 1.05


def over_committed(owners: Owners, joined: JoinedPage | None) -> Mapping[DeviceKey, float]:
    """The sum of the parts that a GPU's holders were granted, for each GPU of which it is surely above 1."""
    granted = {
        key: [holder.grant for holder in holders if holder.grant is not None]
        for key, holders in owners.holders.items()
        if not key.instance
    }
    if not any(granted.values()):
        return {}
    values = DeviceValues()
    at_once(values.read(joined.readings(FAMILIES_OF_MEMORY) if joined else ()))
    sums: dict[DeviceKey, float] = {}
    for key, grants in granted.items():
        parts = [part_of(grant, values.all_memory_of(key)) for grant in grants]
        together = sum(part[0] / part[1] for part in parts if part is not None)
        if together >= _LEAST:
            sums[key] = together
    return sums
