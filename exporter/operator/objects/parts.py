"""Parts of an object that the Kubernetes API says: whatever has another type than it should is not there. Pure."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

AnyObject = Mapping[str, Any]
_NOTHING: AnyObject = {}
_LARGEST = 2**31 - 1
_TIME = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|m|h)\b|\d{4}-\d\d-\d\dT[0-9:.]+Z?")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")


def mapping(of: AnyObject, *path: str) -> AnyObject:
    """The mapping at the end of a path of names; an empty one where there is none."""
    found: object = of
    for name in path:
        if not isinstance(found, Mapping):
            return _NOTHING
        found = found.get(name)
    return found if isinstance(found, Mapping) else _NOTHING


def is_going(item: AnyObject) -> bool:
    """Whether an object is being deleted."""
    return bool(mapping(item, "metadata").get("deletionTimestamp"))


def mappings(of: AnyObject, name: str, most: int = 1_000) -> Sequence[AnyObject]:
    """The mappings of a list, at most so many."""
    found = of.get(name)
    return [item for item in found[:most] if isinstance(item, Mapping)] if isinstance(found, list) else ()


def text(of: AnyObject, name: str) -> str:
    """A text; "" where there is none."""
    found = of.get(name)
    return found if isinstance(found, str) else ""


def number(of: AnyObject, name: str) -> int | None:
    """A whole number from 0 to what 31 bits hold; None where there is none."""
    found = of.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= _LARGEST else None


def word(said: str) -> str:
    """A reason, as a condition may have it: letters and digits; what else is in it is left out."""
    return _NO_LETTER.sub("", said)[:63].lstrip("0123456789")


def condition(of: AnyObject, kind: str) -> AnyObject:
    """The condition of this type in an object's status; an empty mapping where there is none."""
    found = (each for each in mappings(mapping(of, "status"), "conditions") if each.get("type") == kind)
    return next(found, _NOTHING)


def moment(of: AnyObject, name: str) -> datetime | None:
    """A time as Kubernetes writes it (RFC 3339, in UTC); None where there is none."""
    try:
        found = datetime.fromisoformat(text(of, name))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def one_line(said: str, most: int) -> str:
    """A text on one line, of at most so many characters, and without what no terminal should get."""
    found = " ".join("".join(char if char.isprintable() else " " for char in said[: 4 * most]).split())
    return found if len(found) <= most else f"{found[: most - 1].rstrip()}…"


def steady(before: str, now: str) -> str:
    """What was said before, where what is said now differs in durations and times alone: these move all the time."""
    return before if _TIME.sub("", before) == _TIME.sub("", now) else now


def and_more(names: Sequence[str], most: int) -> str:
    """Names as people write them: a, b and 3 more."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))
