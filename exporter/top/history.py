"""The last minutes of each device in the live view, and their charts. No clock is read here."""

from array import array
from collections.abc import Iterator, Sequence
from math import ceil, isnan, nan

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
        points, at = self._points.get(device, array("d")), 1 + _FIELDS.index(field)
        read: list[list[float]] = [[] for _ in range(count)]
        for first in range(0, len(points), _POINT):
            ago = int((self.at_seconds - points[first]) * count / SECONDS)
            read[-1 - min(ago, count - 1)].append(points[first + at])
        means: list[float | None] = []
        last, reach = count, ceil(reach_seconds * count / SECONDS)
        for number, values in enumerate(read):
            last = number if values else last
            mean = sum(read[last]) / len(read[last]) if last <= number <= last + reach else nan
            means.append(None if isnan(mean) else mean)
        return means


def charts(
    device: ShownDevice, history: DeviceHistory, size: tuple[int, int], interval_seconds: float, glyphs: Glyphs
) -> Iterator[Line]:
    """A chart of each known field, and below them the scale of time. `size` is the width, and the most lines."""
    width, height = size
    count = max(1, width - _LABEL)
    reach = max(10.0, 3 * interval_seconds)
    all_columns = {field: history.columns(device.name, field, count, reach) for field in _FIELDS}
    shown = {field: values for field, values in all_columns.items() if any(value is not None for value in values)}
    rows = min(_MOST_ROWS, max(1, (height - 1) // max(1, len(shown))))
    for field, values in shown.items():
        peak = max(value for value in values if value is not None)
        title, now, most, style = _about(device, field, getattr(device, field), peak, glyphs)
        _, top, *_ = _about(device, field, peak, peak, glyphs)
        labels = (f"{title:<5}{now:>12}", f"{f'max {top}':>17}")
        for row in reversed(range(rows)):
            label = labels[rows - 1 - row] if row > rows - 1 - len(labels) else ""
            bars = "".join(_part(value, most, rows, row, glyphs) for value in values)
            label = pad(cut(label, _LABEL, glyphs), _LABEL)
            yield [TextSpan(cut(label, width, glyphs), "label"), TextSpan(bars[: width - _LABEL], style)]
    minutes = f"{SECONDS / 60:.0f} min ago"
    axis = f"{minutes}{'now':>{max(4, count - len(minutes))}}" if shown else "nothing of it has been read yet"
    yield [TextSpan(cut(" " * _LABEL + axis, width, glyphs), "dim")]


def _about(
    device: ShownDevice, field: str, value: float | None, peak: float, glyphs: Glyphs
) -> tuple[str, str, float, str]:
    """A field's title, the value in words, the top of the scale, and the style."""
    total = device.memory_total_mib
    title, unit, most, style = {
        "utilization_percent": ("UTIL", "%", 100.0, "load"),
        "memory_used_mib": ("MEM", f"/{gib(total)}G" if total else "G", total or peak, "memory"),
        "power_watts": ("POWER", "W", peak, "owner"),
        "temperature_celsius": ("TEMP", glyphs.degrees, 100.0, heat_style(peak) or "good"),
    }[field]
    number = "" if value is None else gib(value) if title == "MEM" else f"{value:.0f}"
    return title, number and f"{number}{unit}", most, style


def _part(value: float | None, most: float, rows: int, row: int, glyphs: Glyphs) -> str:
    """The character of a value in a row of a chart. Rows count from below; 0 is a line, unknown is a space."""
    if value is None:
        return " "
    level = max(1, round(min(1.0, value / most if most else 0) * _LEVELS * rows))
    return " " if level <= row * _LEVELS else glyphs.chart[min(_LEVELS, level - row * _LEVELS) - 1]
