"""Numbers and names as people read them. Names come from whoever may make a pod: none of them moves a cursor."""

from decimal import Decimal
from unicodedata import combining, east_asian_width

MOST_CHARS = 120
_WIDE = frozenset("WF")
_NOBODY = dict.fromkeys(("namespace", "pod", "workload"), "(nobody)")
_NOBODY |= dict.fromkeys(("model", "node", "cluster"), "(unknown)")
# from where on a number is shown with fewer decimals
_HUNDRED, _TEN_THOUSAND, _LEAST = 100, 10_000, 0.005


def clean(text: str, most: int = MOST_CHARS) -> str:
    """A text on one line and not too long, without control characters and marks that turn its direction."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text[: most + 1])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def name_of(name: str | None, by: str) -> str:
    """A group's name, or what stands for rows that belong to none. No name in Kubernetes has a parenthesis."""
    return _NOBODY.get(by, "(without this label)") if name is None else clean(name)


def number(value: float | None) -> str:
    """With two decimals if small and none if large; "-" for unknown, and never 0.00 for what is not 0."""
    if value is None:
        return "-"
    if value >= _TEN_THOUSAND:
        return f"{value:,.0f}"
    if value >= _HUNDRED:
        return f"{value:,.1f}"
    return "<0.01" if 0 < value < _LEAST else f"{value:.2f}"


def money(value: Decimal | None) -> str:
    """To the cent, however large; "-" for unknown."""
    return "-" if value is None else f"{value:,.2f}"


def change(value: float) -> str:
    """A difference of two numbers, with its sign."""
    sign = ""
    if value > 0:
        sign = "+"
    if value < 0:
        sign = "-"
    return sign + number(abs(value))


def percent(ratio: float | None) -> str:
    """Whole percents; "-" for unknown."""
    return "-" if ratio is None else f"{ratio * 100:.0f}%"


def width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(map(_width_of, text))


def _width_of(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in _WIDE else 1


def fit(text: str, columns: int) -> str:
    """A text in so many columns: cut in its middle, since names differ at both ends, or filled up with spaces."""
    if width(text) > columns:
        tail = _within(text[::-1], (columns - 1) // 2)[::-1]
        text = f"{_within(text, columns - 1 - width(tail))}…{tail}"
    return text + " " * (columns - width(text))


def _within(text: str, columns: int) -> str:
    taken = used = 0
    for char in text:
        used += width(char)
        if used > columns:
            break
        taken += 1
    return text[:taken]
