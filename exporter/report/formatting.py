"""Numbers and names as people read them. Anybody who may make a pod chooses names, so no name may move a cursor.

Tests: tests/report/test_forms.py.
"""

from decimal import Decimal
from unicodedata import combining, east_asian_width

from exporter.wording import escaped

MOST_CHARS = 120
_WIDE = frozenset("WF")
_NOBODY = dict.fromkeys(("namespace", "pod", "workload"), "(nobody)")
_NOBODY |= dict.fromkeys(("model", "node", "cluster"), "(unknown)")
_NOBODY["queue"] = "(no queue)"
# the numbers from which on fewer decimals are shown, and the least number that is not shown as <0.01
_HUNDRED = 100
_TEN_THOUSAND = 10_000
_LEAST = 0.005


def clean(text: str, most: int = MOST_CHARS) -> str:
    """A text on one line of at most `most` characters, without control characters and marks that turn its direction."""
    return escaped(text, most)


def name_of(name: str | None, by: str) -> str:
    """A group's name, or the words for rows without a group. They have parentheses, as no name in Kubernetes has."""
    return _NOBODY.get(by, "(without this label)") if name is None else clean(name)


def number(value: float | None) -> str:
    """A number with two decimals if it is small, none if it is large; "-" if unknown. Only 0 is shown as 0.00."""
    if value is None:
        return "-"
    if value >= _TEN_THOUSAND:
        return f"{value:,.0f}"
    if value >= _HUNDRED:
        return f"{value:,.1f}"
    return "<0.01" if 0 < value < _LEAST else f"{value:.2f}"


def money(value: Decimal | None) -> str:
    """A cost to the cent, however large it is; "-" if unknown."""
    return "-" if value is None else f"{value:,.2f}"


def change(value: float) -> str:
    """The difference of two numbers, with its sign."""
    sign = ""
    if value > 0:
        sign = "+"
    if value < 0:
        sign = "-"
    return sign + number(abs(value))


def percent(ratio: float | None) -> str:
    """A ratio in whole percents; "-" if unknown."""
    return "-" if ratio is None else f"{ratio * 100:.0f}%"


def width(text: str) -> int:
    """The number of columns that a text takes in a terminal."""
    return sum(map(_width_of, text))


def _width_of(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in _WIDE else 1


def fit(text: str, columns: int) -> str:
    """A text of exactly `columns` columns.

    A longer text is cut in its middle, since names differ at both ends. A shorter one gets spaces at its end.
    """
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
