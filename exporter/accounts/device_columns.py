"""The values of a page by device and column. What belongs where is worked out once for pages of the same series.

Tests: tests/accounts/test_hangs.py, tests/accounts/test_out_of_memory.py.
"""

from collections.abc import Mapping, Sequence

from exporter.dividing.decimals import is_amount
from exporter.model.devices import DeviceKey
from exporter.model.pages import JoinedPage, Sampled
from exporter.model.slices import ITEMS_A_SLICE, Work, listed

Columns = Sequence[Sequence[float]]
"""The values of one device by column, in the page's order: a column may have several families or rows."""
_Places = Sequence[Sequence[int]]
# A number with fewer characters, below DCGM's values for "not supported", is an amount without a closer look.
_SHORT = 20
_SMALL = 1e9


class DeviceColumns:
    """A reader of pages. `families` has the column (from 0) and the factor of each family that it reads."""

    def __init__(self, families: Mapping[bytes, tuple[int, float]]) -> None:
        self._families = families
        self._wanted = frozenset(families)
        self._width = 1 + max(column for column, _ in families.values())
        self._series: Sequence[Sampled] = ()
        self._factors: Sequence[float] = ()
        self._devices: Mapping[DeviceKey, _Places] = {}

    def read(self, joined: JoinedPage) -> Work[Mapping[DeviceKey, Columns]]:
        """The values of every device on the page that has any. Rows of a virtual GPU are left out."""
        readings = yield from listed(joined.readings(self._wanted))
        # series are the same objects as long as the page has them
        series = [sampled for sampled, _ in readings]
        if series != self._series:
            devices = yield from self._places_of(series)
            # together, and last: what breaks off in between must not leave the places of other series
            self._factors = [self._families[sampled.name][1] for sampled in series]
            self._devices = devices
            self._series = series
        yield
        numbers = [number_of(text) for _, text in readings]
        yield
        values = [
            None if number is None else number * factor for number, factor in zip(numbers, self._factors, strict=True)
        ]
        columns: dict[DeviceKey, Columns] = {}
        for number, (key, places) in enumerate(self._devices.items(), start=1):
            if not number % ITEMS_A_SLICE:
                yield
            of_device = [_amounts_at(values, of_column) for of_column in places]
            if any(of_device):
                columns[key] = of_device
        return columns

    def _places_of(self, series: Sequence[Sampled]) -> Work[Mapping[DeviceKey, _Places]]:
        """The places of each device's series in the page, by column."""
        devices: dict[DeviceKey, list[list[int]]] = {}
        for place, sampled in enumerate(series):
            if place % ITEMS_A_SLICE == ITEMS_A_SLICE - 1:
                yield
            if sampled.subject.vgpu:
                continue
            places = devices.setdefault(sampled.subject.key, [[] for _ in range(self._width)])
            places[self._families[sampled.name][0]].append(place)
        return devices


def number_of(text: bytes) -> float | None:
    """A sample's value; None if it is no amount."""
    number = float(text)
    if -_SMALL < number < _SMALL and len(text) < _SHORT:
        return number
    return number if is_amount(text) else None


def _amounts_at(values: Sequence[float | None], places: Sequence[int]) -> Sequence[float]:
    if not places:
        return ()
    return [value for value in map(values.__getitem__, places) if value is not None]
