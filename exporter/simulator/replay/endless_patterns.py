"""Regular expressions in a bundle that could run for years. Python cannot break off one that runs, so none begins.

Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exporter.config.node_settings import SETTINGS
from exporter.config.parsers import REGEX
from exporter.errors import ExporterError

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?[^)]?|\{[0-9]*,?[0-9]*\}|.", re.DOTALL)
_REPEATS = re.compile(r"(?P<is_open>[*+]|\{[0-9]*,[0-9]*\})|\{[0-9]{2,}\}")
# A text of n characters takes at most about n to this power steps. What users write has one or two.
_MOST_REPEATS = 4
_FLAGS = frozenset(setting.name for setting in SETTINGS if setting.kind is REGEX)


@dataclass(slots=True)
class _Group:
    """What was read of a group: `repeats` in the present alternative, the `most` in one, and whether it has several."""

    repeats: int = 0
    most: int = 0
    has_alternatives: bool = False

    def end_alternative(self) -> None:
        self.most = max(self.most, self.repeats)
        self.repeats = 0


def refuse_endless(flag: str, texts: Iterable[str]) -> None:
    """Look through the texts of a flag that takes regular expressions. Texts of other flags are of no interest.

    Raises:
        ExporterError: one of them may run for a very long time.
    """
    if flag in _FLAGS:
        refuse_endless_patterns(flag, texts)


def refuse_endless_patterns(flag: str, patterns: Iterable[str]) -> None:
    """Look through regular expressions that a flag, or the file that it names, has. Raises as `refuse_endless` does."""
    for pattern in patterns:
        if may_be_endless(pattern):
            raise ExporterError(
                f"the bundle's --{flag} has a regular expression that may run for years: {pattern[:60]!r}"
                " -> have its sender write it with fewer repetitions, and none within another"
            )


def may_be_endless(pattern: str) -> bool:
    """Whether a match may take exponential time, or more than the fourth power of a text's length.

    A repeated group must have neither repetitions nor alternatives. It may refuse a pattern that is harmless.
    """
    groups = [_Group()]
    closed: _Group | None = None  # the group that has just ended
    for part in _TOKEN.findall(pattern):
        inner = closed
        closed = None
        if part.startswith("("):
            groups.append(_Group())
        elif part == ")" and len(groups) > 1:
            closed = groups.pop()
            closed.end_alternative()
            groups[-1].repeats += closed.most
        elif part == "|":
            groups[-1].end_alternative()
            groups[-1].has_alternatives = True
        elif repeats := _REPEATS.fullmatch(part):
            if inner is not None and (inner.most or inner.has_alternatives):
                return True
            if repeats["is_open"]:
                groups[-1].repeats += 1
        if groups[-1].repeats > _MOST_REPEATS:
            return True
    return False
