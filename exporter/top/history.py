"""The last minutes of each device in the live view, and their charts. No clock is read here.

Tests: tests/top/test_parts.py.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from math import ceil, isnan, nan
from typing import NamedTuple

from exporter.model.device_row import RowDevice
from exporter.top.columns import Glyphs, Line, TextSpan, cut, pad
from exporter.top.shown_devices import ShownDevice
from exporter.top.tables import gib, heat_style

SECONDS = 300.0
MOST_DEVICES = 4000  # a device takes 6 KB, if it is asked about every two seconds for five minutes
_FIELDS = ("utilization_percent", "memory_used_mib", "power_watts", "temperature_celsius")
_POINT = 1 + len(_FIELDS)
_LEVELS = 8
_LABEL = 18
_MOST_ROWS = 5


class DeviceHistory:
    """The points of each device: seconds by any clock, percent, MiB, W, °C; NaN is unknown."""

    def __init__(self) -> None:
        self._points: dict[RowDevice, array[float]] = {}
        self.at_seconds = 0.0

    def add(self, devices: Sequence[ShownDevice], at_seconds: float) -> None:
        """Remember a reading, and forget readings older than SECONDS."""
        self.at_seconds = at_seconds
        for device in devices[:MOST_DEVICES]:
            points = self._points.setdefault(device.name, array("d"))
            values = (getattr(device, name) for name in _FIELDS)
            points.extend((at_seconds, *(nan if value is None else value for value in values)))
        for name, points in [*self._points.items()]:
            while points and at_seconds - points[0] > SECONDS:
                del points[:_POINT]
            if not points:
                del self._points[name]

    def columns(self, device: RowDevice, field: str, count: int, reach_seconds: float) -> Sequence[float | None]:
        """The means of a device's field over the last SECONDS; the latest is at the end.

        Args:
            device: the device's name.
            field: the field, one of _FIELDS.
            count: the number of columns, each of which covers the same time.
            reach_seconds: the time for which a reading counts if no other one follows.
        """
        points = self._points.get(device, array("d"))
        offset = 1 + _FIELDS.index(field)
        values_of: list[list[float]] = [[] for _ in range(count)]
        for first in range(0, len(points), _POINT):
            ago = int((self.at_seconds - points[first]) * count / SECONDS)
            values_of[-1 - min(ago, count - 1)].append(points[first + offset])
        means: list[float | None] = []
        reach = ceil(reach_seconds * count / SECONDS)
        mean = nan
        without = 0  # columns since the last one with a reading
        for values in values_of:
            if values:
                mean = sum(values) / len(values)
                without = 0
            else:
                without += 1
            means.append(None if isnan(mean) or without > reach else mean)
        return means


def charts(
    device: ShownDevice, history: DeviceHistory, size: tuple[int, int], interval_seconds: float, glyphs: Glyphs
) -> Iterator[Line]:
    """A chart of each known field, and below them the scale of time. `size` is the width, and the most lines."""
    width, height = size
    count = max(1, width - _LABEL)
    reach = max(10.0, 3 * interval_seconds)
    all_columns = {field: history.columns(device.name, field, count, reach) for field in _FIELDS}
    shown = {field: means for field, means in all_columns.items() if any(mean is not None for mean in means)}
    rows = min(_MOST_ROWS, max(1, (height - 1) // max(1, len(shown))))
    for field, means in shown.items():
        peak = max(mean for mean in means if mean is not None)
        scale = _scale_of(device, field, peak, glyphs)
        now = scale.words(getattr(device, field))
        labels = [f"{scale.title:<5}{now:>12}", f"{f'max {scale.words(peak)}':>17}", *[""] * rows]
        for row, label in zip(reversed(range(rows)), labels, strict=False):
            bars = "".join(_part(mean, scale.top, rows, row, glyphs) for mean in means)
            padded = pad(cut(label, _LABEL, glyphs), _LABEL)
            yield [TextSpan(cut(padded, width, glyphs), "label"), TextSpan(bars[: width - _LABEL], scale.style)]
    minutes = f"{SECONDS / 60:.0f} min ago"
    axis = f"{minutes}{'now':>{max(4, count - len(minutes))}}" if shown else "nothing of it has been read yet"
    yield [TextSpan(cut(" " * _LABEL + axis, width, glyphs), "dim")]


class _Scale(NamedTuple):
    """How a field is shown; `top` is the value at the top of its chart."""

    title: str
    unit: str
    top: float
    style: str
    number: Callable[[float], str] = "{:.0f}".format

    def words(self, value: float | None) -> str:
        return "" if value is None else f"{self.number(value)}{self.unit}"


def _scale_of(device: ShownDevice, field: str, peak: float, glyphs: Glyphs) -> _Scale:
    total = device.memory_total_mib
    return {
        "utilization_percent": _Scale("UTIL", "%", 100.0, "load"),
        "memory_used_mib": _Scale("MEM", f"/{gib(total)}G" if total else "G", total or peak, "memory", gib),
        "power_watts": _Scale("POWER", "W", peak, "owner"),
        "temperature_celsius": _Scale("TEMP", glyphs.degrees, 100.0, heat_style(peak) or "good"),
    }[field]


def _part(mean: float | None, top: float, rows: int, row: int, glyphs: Glyphs) -> str:
    """The character of a value in a row of a chart. Rows count from below; 0 is a line, unknown is a space."""
    if mean is None:
        return " "
    ratio = min(1.0, mean / top) if top else 0
    level = max(1, round(ratio * _LEVELS * rows)) - row * _LEVELS
    return glyphs.chart[min(_LEVELS, level) - 1] if level > 0 else " "
