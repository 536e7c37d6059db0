"""Suggestions for a mistyped name: a flag, a key of the file, an environment name, a command.

foreign_names.py has the names that other programs use. Any other name is compared with the names that exist. This
module is imported only after a mistake.

Tests: tests/cli/test_mistakes.py.
"""

import re
from collections.abc import Collection, Mapping, Sequence

MOST = 3
_LEAST_LIKENESS = 0.6
_SURE = 0.9
# the least likeness if every typed word is a word of the name
_PART = 0.7
# the command that takes keys with this first word; other keys belong to all commands
_OF_SERVE = (
    "claims kubelet resources device-rules inventory dra dcgm nvml processes probe node-name labels pods sharing"
    " workload families accounting kernel-log otlp allocators"
)
ROLES: Mapping[str, str] = {
    **dict.fromkeys(_OF_SERVE.split(), "serve"),
    "cluster": "cluster",
    "keda": "cluster",
    "operator": "operator",
}


def closest(name: str, names: Collection[str]) -> Sequence[str]:
    """The names that are most like `name`, best first, three at most; a single name if it is surely meant."""
    words = _words(name)
    likeness = {candidate: _likeness(words, _words(candidate)) for candidate in names}
    near = [candidate for candidate in sorted(names) if likeness[candidate] >= _LEAST_LIKENESS]
    near.sort(key=likeness.__getitem__, reverse=True)
    return near[: 1 if near and likeness[near[0]] >= _SURE else MOST]


def did_you_mean(name: str, names: Collection[str], command: str = "") -> str:
    """The advice: `did you mean A, B or C?`, or a line about another program's name; "" if no name is near."""
    from exporter.config.foreign_names import OTHER_NAMES  # noqa: PLC0415 - only a wrong name needs it

    bare = name.lstrip("-")
    dashes = "--" if name != bare else ""
    rows = [row for row in OTHER_NAMES if bare in row.typed]
    for row in rows:
        if command in row.of:
            return row.do
    for row in rows:
        for here in row.here:
            if f"{dashes}{here}" in names:
                return asked([f"{dashes}{here}"])
    for row in rows:
        if row.do and not row.of:
            return row.do
    return asked(closest(name, names))


def asked(near: Sequence[str]) -> str:
    """`did you mean A, B or C?`; "" without names."""
    if not near:
        return ""
    *others, last = near
    if not others:
        return f"did you mean {last}?"
    return f"did you mean {', '.join(others)} or {last}?"


def _words(name: str) -> Sequence[str]:
    return [word for word in re.split(r"[._-]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()) if word]


def _likeness(typed: Sequence[str], words: Sequence[str]) -> float:
    """The likeness of two names, from 0 to 1."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - 0.5 MiB, and every reader of YAML imports this module

    whole = SequenceMatcher(None, "-".join(typed), "-".join(words)).ratio()
    if typed and set(typed) <= set(words):
        return max(whole, _PART + (1 - _PART) * len(typed) / len(words))
    return whole
