"""What somebody meant who typed a name that is none: a flag, a key of the file, an environment name, a command.

mistakes.json has the names that other programs use, such as dcgm-exporter, node_exporter and top: `here` are the names
that do it here, of which the first that a command has counts; `do` is what to do instead, in the commands `of` where
the row has these. Any other name is compared with those that there are. Imported only where there is a mistake, or
YAML.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from pkgutil import get_data
from typing import Any

MOST = 3
_LEAST_LIKENESS = 0.6
_SURE = 0.9
# what is typed is a part of the name, word by word
_PART = 0.7
_CONTENT: Mapping[str, Any] = json.loads(get_data(__package__, "mistakes.json") or b"")
COMMANDS: Mapping[str, str] = _CONTENT["commands"]
ARGUMENTS: Mapping[str, str] = _CONTENT["arguments"]
# what to do, by the system's name of an error, and by a part of what a YAML parser says
OF_FILES: Mapping[str, str] = _CONTENT["files"]
OF_YAML: Mapping[str, str] = _CONTENT["yaml"]
# which command takes the keys that begin with this, where not all do
ROLES: Mapping[str, str] = _CONTENT["roles"]


def closest(name: str, names: Collection[str]) -> Sequence[str]:
    """Those of the names that are most like this one, best first, three at most; one where it is surely meant."""
    words = _words(name)
    likeness = {each: _likeness(words, _words(each)) for each in names}
    near = [each for each in sorted(names) if likeness[each] >= _LEAST_LIKENESS]
    near.sort(key=likeness.__getitem__, reverse=True)
    return near[: 1 if near and likeness[near[0]] >= _SURE else MOST]


def did_you_mean(name: str, names: Collection[str], command: str = "") -> str:
    """What to do instead: `did you mean A, B or C?`, or a line on another program's name; "" where nothing is near."""
    bare = name.lstrip("-")
    dashes = "--" if name != bare else ""
    rows = [row for row in _CONTENT["names"] if bare in row["typed"]]
    for row in rows:
        if command in row.get("of", ()):
            return str(row["do"])
    here = [f"{dashes}{each}" for row in rows for each in row.get("here", ())]
    near = [each for each in here if each in names][:1]
    if not near:
        for row in rows:
            if "do" in row and "of" not in row:
                return str(row["do"])
    return asked(near or closest(name, names))


def asked(near: Sequence[str]) -> str:
    """`did you mean A, B or C?`; "" for none."""
    *others, last = near or ("",)
    return f"did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def _words(name: str) -> Sequence[str]:
    return [word for word in re.split(r"[._-]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()) if word]


def _likeness(typed: Sequence[str], words: Sequence[str]) -> float:
    """From 0 to 1."""
    from difflib import SequenceMatcher  # noqa: PLC0415 - 0.5 MiB, and who reads YAML imports this module

    whole = SequenceMatcher(None, "-".join(typed), "-".join(words)).ratio()
    if typed and set(typed) <= set(words):
        return max(whole, _PART + (1 - _PART) * len(typed) / len(words))
    return whole
