"""The time in which kernels of each owner of a GPU ran, added up from one reading of the driver to the next."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from exporter.model.devices import DeviceKey
    from exporter.model.driver import DriverReading
    from exporter.model.measured import Measured
    from exporter.model.pods import Owner

_NS = 1_000_000_000


@dataclass(slots=True)
class _Time:
    """Nanoseconds, and the number of the last reading that they were looked at for."""

    ns: int
    reading: int


class SmTimes:
    """Adds up what readings say, by device and owner; None for the processes that count for nobody.

    A reading counts once for each owner, however often it is measured: owners change between two readings, and pages
    of several sources may know different ones. An owner begins at 0 with the reading that shows it first. One that a
    whole reading did not show is forgotten, so as many are known as two readings show.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[DeviceKey, Owner | None], _Time] = {}
        self._last: DriverReading | None = None
        self._number = 0
        self._step_seconds = 0.0

    def __len__(self) -> int:
        """How many times are known."""
        return len(self._times)

    def pause(self) -> None:
        """Nobody knows what runs from here on: the time up to the next reading counts for nobody."""
        self._last = None

    def add(self, reading: "DriverReading", measured: "Measured | None") -> "Measured | None":
        """What the reading was measured to say, with the times of all up to it; None where it says nothing."""
        before, self._last = self._last, reading
        if measured is None:
            return None
        if reading is not before:
            # what a reading says is of the time since the reading before
            self._step_seconds = max(0.0, reading.read_at - before.read_at) if before else 0.0
            self._number += 1
            self._times = {of: time for of, time in self._times.items() if time.reading >= self._number - 1}
        ratios: dict[DeviceKey, dict[Owner | None, float | None]] = {}
        for (device, owner), use in measured.uses.items():
            ratios.setdefault(device, {})[owner] = use.sm_ratio
        for device, of_device in ratios.items():
            nobodys = measured.nobodys.get(device)
            of_device[None] = nobodys.sm_ratio if nobodys else 0.0
        times = {device: self._add(device, of_device) for device, of_device in ratios.items()}
        known = {device: of_device for device, of_device in times.items() if of_device is not None}
        return replace(measured, sm_ns=MappingProxyType(known))

    def _add(
        self, device: "DeviceKey", ratios: "dict[Owner | None, float | None]"
    ) -> "MappingProxyType[Owner | None, int] | None":
        """The times on a device; None, and nothing added, where that of somebody is not known."""
        is_known = None not in ratios.values()
        times: dict[Owner | None, int] = {}
        for owner, ratio in ratios.items():
            time = self._times.setdefault((device, owner), _Time(0, self._number))
            if time.reading != self._number and is_known:
                time.ns += round((ratio or 0.0) * self._step_seconds * _NS)
            time.reading = self._number
            times[owner] = time.ns
        return MappingProxyType(times) if is_known else None
