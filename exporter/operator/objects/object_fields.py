"""What stands in many objects of Kubernetes: conditions, times, and texts as a status may show them. Pure.

Conditions are as in https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md:
the time is that of the last change of `status`, and a changed reason or message leaves it as it is. A message in which
durations and times alone have changed stays as it was.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from exporter.errors import SourceError, Trouble, listed
from exporter.lenient import AnyObject, mapping, mappings, number, text

_TIME = re.compile(r"\d+(?:\.\d+)? ?(?:ms|s|m|h)\b|\d{4}-\d\d-\d\dT[0-9:.]+Z?")
_NO_LETTER = re.compile(r"[^A-Za-z0-9]+")


def is_going(item: AnyObject) -> bool:
    """Whether an object is being deleted."""
    return bool(mapping(item, "metadata").get("deletionTimestamp"))


def word(text_of: str) -> str:
    """A reason, as a condition may have it: letters and digits; what else is in it is left out."""
    return _NO_LETTER.sub("", text_of)[:63].lstrip("0123456789")


class Condition(NamedTuple):
    """Whether something is so (True, False or Unknown), why in one CamelCase word, and why in a sentence for people."""

    status: str
    reason: str
    message: str


def condition(status: AnyObject, kind: str) -> Condition:
    """The condition of this type in a status, the first if there are several; "" for each part that it lacks."""
    row = _row(status, kind)
    return Condition(*(text(row, name) for name in Condition._fields))


def _row(status: AnyObject, kind: str) -> AnyObject:
    return next((each for each in mappings(status, "conditions") if each.get("type") == kind), {})


def moment(of: AnyObject, name: str) -> datetime | None:
    """A time as Kubernetes writes it (RFC 3339, in UTC); None where there is none."""
    try:
        time = datetime.fromisoformat(text(of, name))
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def one_line(text_of: str, most: int) -> str:
    """A text on one line, of at most so many characters, and without what no terminal should get."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text_of[: 4 * most]).split())
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def steady(before: str, now: str) -> str:
    """What was said before, where what is said now differs in durations and times alone: these move all the time."""
    return before if _TIME.sub("", before) == _TIME.sub("", now) else now


def and_more(names: Sequence[str], most: int) -> str:
    """Names as people write them: a, b and 3 more."""
    if len(names) > most:
        return listed(names, most)
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


MOST_CHARS = 4096


def base_status(owner: AnyObject, conditions: Mapping[str, Condition], now: datetime) -> dict[str, Any]:
    """What every status has. `owner` is the object with the status that it has; the conditions are by their types."""
    old, generation, rows = mapping(owner, "status"), number(mapping(owner, "metadata"), "generation") or 0, []
    for kind, new in conditions.items():
        before, message, since = condition(old, kind), one_line(new.message, MOST_CHARS), written(now)
        if before.status == new.status:
            if before.reason == new.reason:
                message = steady(before.message, message)
            if moment(row := _row(old, kind), "lastTransitionTime"):
                since = text(row, "lastTransitionTime")
        rows.append(
            {
                "type": kind,
                "status": new.status,
                "reason": new.reason,
                "message": message,
                "lastTransitionTime": since,
                "observedGeneration": generation,
            }
        )
    return {"observedGeneration": generation, "conditions": rows}


def written(now: datetime) -> str:
    """A time as Kubernetes writes it: RFC 3339, in UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def in_microseconds(seconds: float) -> str:
    """A moment, counted from 1970, as MicroTime has it."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def is_same(old: AnyObject, new: Mapping[str, object]) -> bool:
    """Whether a status says already what another one would: then it is not written."""
    return all(old.get(name) == value for name, value in new.items()) and not old.keys() - new.keys()


def as_trouble(error: SourceError) -> Trouble:
    """The API server does not let the operator write, or does not answer. Of these, a `Refused` has an HTTP status."""
    usual = "Refused" if isinstance(getattr(error, "status", None), int) else "ApiUnavailable"
    reasons = {"permission": "Forbidden", "unauthorized": "Forbidden", "oversize": "TooMany"}
    return replace(error.trouble, reason=reasons.get(error.reason, usual))
