"""Which part of the page its address asks for: what is filtered, sorted and folded. A link to it shows the same.

Addresses come from anywhere: what is not understood is left out, and nothing is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any
from urllib.parse import urlencode

MOST_LINES = 200  # are shown at once
_MOST_OF_ALL = 5000
_MOST_FOLDS = 100
FOLDS = {"": "by itself", "none": "nothing", "gpu": "GPUs", "node": "nodes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageView:
    """The parameters of the address.

    `filter` has words, `show` a state, `sort` the name of a column, after "-" where the highest come first. `fold` is a
    key of FOLDS, and what is named in `but` is the other way. `pod` is namespace/name, and `lines` how many are shown.
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
        """That of the parameters of a request."""
        given = [*query]
        texts = {name: value for name, value in given if name in _TEXTS}
        lines = dict(given).get("lines", "")
        some = int(lines) if lines.isascii() and lines.isdigit() and len(lines) < len(str(10 * _MOST_OF_ALL)) else 0
        return cls(
            **texts,
            but=tuple(dict.fromkeys(value for name, value in given if name == "but"))[:_MOST_FOLDS],
            lines=min(max(some, MOST_LINES), _MOST_OF_ALL),
        )

    def address(self, **changes: Any) -> str:  # noqa: ANN401 - the fields' values
        """The address of this view with changes, relative to the page; not escaped for HTML."""
        view = replace(self, **changes)
        values = ((each.name, getattr(view, each.name), each.default) for each in fields(view))
        asked = [(name, value) for name, value, default in values if value != default]
        return f"?{urlencode(asked, doseq=True, errors='replace')}"

    def toggled(self, key: str) -> str:
        """The address of this view in which what is called so is folded, or unfolded."""
        others = tuple(each for each in self.but if each != key)
        return self.address(but=others if key in self.but else (*others, key))

    def sorted_by(self, column: str) -> str:
        """The address of this view by a column: the highest first, then the lowest, then as they come."""
        return self.address(sort={f"-{column}": column, column: ""}.get(self.sort, f"-{column}"))


_TEXTS = {each.name for each in fields(PageView) if each.default == ""}
