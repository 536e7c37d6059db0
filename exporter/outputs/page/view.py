"""The view: the part of the page that its address asks for, by filter, order and folding. A link shows the same view.

Addresses come from anywhere. Parameters that the page does not understand are left out; no address is refused.

Tests: tests/outputs/test_page.py.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

MOST_LINES = 200  # the most lines that are shown at once by default
_MOST_OF_ALL = 5000
_MOST_FOLDS = 100
FOLDS = {"": "automatic", "none": "nothing", "gpu": "GPUs", "node": "nodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """The parameters of the address. The defaults stand for parameters that it does not have.

    Attributes:
        node: a node's name.
        pod: a pod as namespace/name.
        filter: words that a device must have, with blanks between them.
        show: a state that a device must have, or `held`.
        sort: the name of a column; with "-" before it the highest value comes first.
        fold: a key of FOLDS.
        but: the keys of lines that are folded although `fold` unfolds them, or the other way round.
        lines: the most lines that are shown.
    """

    node: str = ""
    pod: str = ""
    filter: str = ""
    show: str = ""
    sort: str = ""
    fold: str = ""
    but: tuple[str, ...] = ()
    lines: int = MOST_LINES

    @classmethod
    def of(cls, query: Iterable[tuple[str, str]]) -> "PageView":
        """The view that a request's parameters ask for."""
        given = [*query]
        texts = {name: value for name, value in given if name in _TEXTS}
        lines = dict(given).get("lines", "")
        is_number = lines.isascii() and lines.isdigit() and len(lines) < len(str(10 * _MOST_OF_ALL))
        wanted = int(lines) if is_number else 0
        folds = dict.fromkeys(value for name, value in given if name == "but")
        return cls(**texts, but=tuple(folds)[:_MOST_FOLDS], lines=min(max(wanted, MOST_LINES), _MOST_OF_ALL))

    def address(self, **changes: Any) -> str:  # noqa: ANN401 - the fields' values
        """The address of this view with changes, relative to the page; not escaped for HTML."""
        view = replace(self, **changes)
        asked = {}
        for field in fields(view):
            value = getattr(view, field.name)
            if value != field.default:
                asked[field.name] = value
        return f"?{urlencode(asked, doseq=True, errors='replace')}"

    def toggled(self, key: str) -> str:
        """The address of this view with the line of this key folded if it is open, or opened if it is folded."""
        others = tuple(folded for folded in self.but if folded != key)
        return self.address(but=others if key in self.but else (*others, key))

    def sorted_by(self, column: str) -> str:
        """The address of this view sorted by a column: highest first, at the next click lowest first, then unsorted."""
        return self.address(sort={f"-{column}": column, column: ""}.get(self.sort, f"-{column}"))


_TEXTS = {field.name for field in fields(PageView) if field.default == ""}
