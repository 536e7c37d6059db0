"""The time in which kernels ran, added up by device and owner from one reading of the driver to the next. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from exporter.model.devices import DeviceKey
from exporter.model.driver import DriverReading
from exporter.model.measured import Measured
from exporter.model.pods import Owner

_NS = 1_000_000_000
_PART_OF_THE_FIRST = 2  # a first reading counts for this fraction of its time


@dataclass(slots=True)
class _Time:
    """Nanoseconds, and the number of the last reading that was counted or seen."""

    ns: int
    reading: int


class SmTimes:
    """Adds up the time in which kernels ran, by device and owner (None: processes that count for nobody).

    A reading counts once for each owner, however often it is measured, since owners change between two readings, and
    pages of several sources may name different owners. NVML has a process' activity while it ran, but not its start. So
    half of an owner's first reading counts, since on average the owner came midway. An owner is forgotten after a
    reading without it.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[DeviceKey, Owner | None], _Time] = {}
        self._last: DriverReading | None = None
        self._number = 0
        self._step_seconds = 0.0

    def pause(self) -> None:
        """Note that it is not known what runs from here on. The time up to the next reading counts for nobody."""
        self._last = None

    def add(self, reading: DriverReading, measured: Measured | None) -> Measured | None:
        """`measured` with everybody's times up to this reading."""
        before = self._last
        self._last = reading
        if measured is None:
            return None
        if reading is not before:
            # a reading covers the time since the previous one
            self._step_seconds = max(0.0, reading.read_at - before.read_at) if before else 0.0
            self._number += 1
            self._times = {share: time for share, time in self._times.items() if time.reading >= self._number - 1}
        ratios: dict[DeviceKey, dict[Owner | None, float | None]] = {}
        for (device, owner), use in measured.uses.items():
            ratios.setdefault(device, {})[owner] = use.sm_ratio
        sm_ns: dict[DeviceKey, Mapping[Owner | None, int]] = {}
        for device, of_device in ratios.items():
            nobodys = measured.nobodys.get(device)
            of_device[None] = nobodys.sm_ratio if nobodys else 0.0
            times = self._add(device, of_device)
            if times is not None:
                sm_ns[device] = times
        return replace(measured, sm_ns=MappingProxyType(sm_ns))

    def _add(self, device: DeviceKey, ratios: Mapping[Owner | None, float | None]) -> Mapping[Owner | None, int] | None:
        """The times on a device after these ratios are added.

        If a ratio is not known, it is None, and nothing is added.
        """
        is_known = None not in ratios.values()
        times: dict[Owner | None, int] = {}
        for owner, ratio in ratios.items():
            time = self._times.get((device, owner))
            seconds = self._step_seconds
            if time is None:
                time = self._times[device, owner] = _Time(0, self._number - 1)
                seconds /= _PART_OF_THE_FIRST
            if time.reading != self._number and is_known:
                time.ns += round((ratio or 0.0) * seconds * _NS)
            time.reading = self._number
            times[owner] = time.ns
        return MappingProxyType(times) if is_known else None
