"""The conditions of a status: what is so, why, and since when. Pure.

As in https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md: the
time is that of the last change of `status`, and a changed reason or message leaves it as it is. A message in which
durations and times alone have changed stays as it was.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from exporter.operator.objects.parts import AnyObject, mappings, moment, one_line, steady, text

MOST_CHARS = 4096


class Verdict(NamedTuple):
    """What a condition says: whether it is so, why in one CamelCase word, and why in a sentence for people."""

    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str


def conditions_of(
    verdicts: Mapping[str, Verdict], old: AnyObject, generation: int, now: datetime
) -> list[dict[str, Any]]:
    """The conditions by their types, in order. `old` is the status that there is; `generation` is the object's."""
    before = {text(each, "type"): each for each in mappings(old, "conditions", 16)}
    return [
        {
            "type": kind,
            "status": verdict.status,
            "reason": verdict.reason,
            "message": _said(before.get(kind), verdict),
            "lastTransitionTime": _since(before.get(kind), verdict, now),
            "observedGeneration": generation,
        }
        for kind, verdict in verdicts.items()
    ]


def written(now: datetime) -> str:
    """A time as Kubernetes writes it: RFC 3339, in UTC, whole seconds."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _said(before: AnyObject | None, verdict: Verdict) -> str:
    message = one_line(verdict.message, MOST_CHARS)
    same = before is not None and (before.get("status"), before.get("reason")) == (verdict.status, verdict.reason)
    return steady(text(before, "message"), message) if before and same else message


def _since(before: AnyObject | None, verdict: Verdict, now: datetime) -> str:
    if before and before.get("status") == verdict.status and moment(before, "lastTransitionTime"):
        return text(before, "lastTransitionTime")
    return written(now)


def is_same(old: AnyObject, new: Mapping[str, object]) -> bool:
    """Whether a status says already what another one would: then it is not written."""
    return all(old.get(name) == value for name, value in new.items()) and not old.keys() - new.keys()


def utc_now() -> datetime:
    """The time, as `status_of` takes it."""
    return datetime.now(UTC)
