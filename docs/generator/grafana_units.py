"""Values in Grafana's form, for the pictures of the dashboards, in each unit that the dashboards use."""

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Final

_THOUSANDS: Final = ("", "k", "M", "G", "T")
_MONEY: Final = ("", "K", "M", "B")


def digits(value: float, decimals: int | None = None) -> str:
    """A number with about three significant digits, like Grafana: 0.123, 1.23, 12.3, 123.

    With `decimals`, it has that many digits after the point.
    """
    if decimals is None:
        before_the_point = len(str(int(abs(value)))) if abs(value) >= 1 else 0
        decimals = 0 if value == int(value) else max(0, 3 - before_the_point)
    return f"{value:.{decimals}f}"


def _scaled(names: tuple[str, ...], unit: str) -> Callable[[float, int | None], str]:
    """A format that divides by 1000 until the number is short."""

    def text(value: float, decimals: int | None) -> str:
        place = 0
        while abs(value) >= 1000 and place < len(names) - 1:  # noqa: PLR2004 - the next unit
            value /= 1000
            place += 1
            decimals = None
        return f"{digits(value, decimals)} {names[place]}{unit}".rstrip()

    return text


def _percent(value: float, decimals: int | None) -> str:
    return f"{digits(value * 100, decimals)}%"


def _money(value: float, decimals: int | None) -> str:
    return f"${_scaled(_MONEY, '')(value, decimals).replace(' ', '')}"


def _celsius(value: float, decimals: int | None) -> str:
    return f"{digits(value, decimals)} °C"


def _bytes(value: float, decimals: int | None) -> str:
    place = 0
    while abs(value) >= 1024 and place < 4:  # noqa: PLR2004 - TiB
        value, place = value / 1024, place + 1
    return f"{digits(value, decimals)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[place]}"


def _seconds(value: float, decimals: int | None) -> str:
    for unit, seconds in (("days", 86400), ("hours", 3600), ("mins", 60)):
        if abs(value) >= seconds:
            return f"{digits(value / seconds, decimals)} {unit}"
    return f"{digits(value, decimals)} s" if abs(value) >= 1 else f"{digits(value * 1000, decimals)} ms"


def _kilowatt_hours(value: float, decimals: int | None) -> str:
    return _scaled(_THOUSANDS, "Wh")(value * 1000, decimals)


_FORMATS: Final[Mapping[str, Callable[[float, int | None], str]]] = {
    "percentunit": _percent,
    "watt": _scaled(_THOUSANDS, "W"),
    "kwatth": _kilowatt_hours,
    "celsius": _celsius,
    "hertz": _scaled(_THOUSANDS, "Hz"),
    "Bps": _scaled(_THOUSANDS, "B/s"),
    "bytes": _bytes,
    "joule": _scaled(_THOUSANDS, "J"),
    "s": _seconds,
    "currencyUSD": _money,
    "short": _scaled(("", "K", "Mil", "Bil"), ""),
}


def shown(value: float, unit: str, decimals: int | None = None) -> str:
    """A value in one of Grafana's units.

    Raises:
        KeyError: the unit is not known here, since no dashboard had it so far.
    """
    if not isfinite(value):
        return "No data"
    if unit.startswith("suffix:"):
        return f"{digits(value, decimals)}{unit.removeprefix('suffix:')}"
    return _FORMATS[unit](value, decimals)
