"""A page's values of devices: their memory, in MiB, and their utilisation, in percent.

Tests: tests/accounts/test_cards.py, tests/accounts/test_out_of_memory.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import isfinite

from exporter.dcgm.fields import FIELDS
from exporter.dividing.decimals import is_amount
from exporter.model.devices import DeviceKey
from exporter.model.pages import Reading, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work

PLACES = 9  # a double has more, but 0.57 times 100 is 57
_USED = "DEV_FB_USED"
_TOTAL = "DEV_FB_TOTAL"
_FREE = "DEV_FB_FREE"
_RESERVED = "DEV_FB_RESERVED"
MEMORY_FIELDS = (_USED, _TOTAL, _FREE, _RESERVED)
UTILIZATION = "DEV_GPU_UTIL"
_FACTORS = {
    name.encode(): (field.name, field.times / field.per)
    for name, field in FIELDS.items()
    if field.name in (UTILIZATION, *MEMORY_FIELDS)
}
FAMILIES_OF_DEVICES = frozenset(_FACTORS)
FAMILIES_OF_MEMORY = frozenset(name for name, (field, _) in _FACTORS.items() if field != UTILIZATION)


class DeviceValues:
    """A page's values of devices. A GPU's values do not include those of its instances."""

    def __init__(self) -> None:
        self._values: defaultdict[DeviceKey, dict[str, float]] = defaultdict(dict)
        self._instances: defaultdict[str, dict[DeviceKey, None]] = defaultdict(dict)

    def read(self, readings: Iterable[Reading]) -> Work[None]:
        """Read samples of FAMILIES_OF_DEVICES."""
        for number, (sampled, text) in enumerate(readings, start=1):
            self._take(sampled, text)
            if not number % ITEMS_A_SLICE:
                yield

    def _take(self, sampled: Sampled, text: bytes) -> None:
        if sampled.subject.vgpu:
            return
        field, factor = _FACTORS[sampled.name]
        value = float(text) * factor if is_amount(text) else float("nan")
        if isfinite(value):
            key = sampled.subject.key
            self._values[key].setdefault(field, round(value, PLACES))
            if key.instance:
                self._instances[key.uuid][key] = None

    def of(self, device: DeviceKey, field: str) -> float | None:
        """A field of a device; None if the page lacks it."""
        values = self._values.get(device)
        return None if values is None else values.get(field)

    def memory_of(self, device: DeviceKey) -> float | None:
        """The memory in use, in MiB. If the page lacks it for a GPU, it is the sum over its MIG instances."""
        own = self.of(device, _USED)
        if own is not None or device.instance:
            return own
        return sum_of([self._values[key].get(_USED) for key in self._instances.get(device.uuid, ())])

    def all_memory_of(self, device: DeviceKey) -> float | None:
        """All memory of a device, in MiB: see `all_memory`."""
        used, total, free, reserved = (self.of(device, field) for field in MEMORY_FIELDS)
        return all_memory(used, total, free, reserved)


def all_memory(used: float | None, total: float | None, free: float | None, reserved: float | None) -> float | None:
    """All memory of a device, by the values of MEMORY_FIELDS; None if they do not tell it.

    It may lack the reserved memory (half a percent or so), as not every page has it.
    """
    if total is not None:
        return total
    used_and_free = sum_of([used, free])
    return None if used_and_free is None else used_and_free + (reserved or 0.0)


def sum_of(parts: Sequence[float | None]) -> float | None:
    """The sum of the parts; None if there are none, or if one is not known."""
    numbers = [part for part in parts if part is not None]
    return round(sum(numbers), PLACES) if numbers and len(numbers) == len(parts) else None
