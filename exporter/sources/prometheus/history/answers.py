"""What a Prometheus server answers, read strictly: bytes in, series out. Pure.

https://prometheus.io/docs/prometheus/latest/querying/api/ describes the form. A server may be anything that listens at
an address, so nothing is taken for granted.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.errors import Malformed

MOST_SERIES = 500_000
# of seconds, joules and GPUs: a megawatt for thirty years
MOST_AMOUNT = 1e15
MOST_WARNINGS = 10
MOST_TOLD_CHARS = 300
_NOT_PROMETHEUS = (
    "is this the address of a Prometheus server, with the path that its API stands below, if there is one?"
)


class Found(NamedTuple):
    """A series: its labels, and its points as seconds of Unix time and a value that is a number from 0 to 1e15."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`odd` counts points that were no such number; `warnings` are the server's own words."""

    series: Sequence[Found]
    odd: int = 0
    warnings: Sequence[str] = field(default=())


def read_answer(body: bytes) -> Answer:
    """An answer to a query, whose result is a vector or a matrix.

    Raises:
        Malformed: it is none.
    """
    content = _object(body)
    data = content.get("data")
    if content.get("status") != "success" or not isinstance(data, dict):
        raise _garbage("it does not say success, or has no data")
    result, kind = data.get("result"), data.get("resultType")
    if not isinstance(result, list) or kind not in ("vector", "matrix"):
        raise _garbage(f"its result is a {str(kind)[:20]!r}, and not a vector or a matrix")
    if len(result) > MOST_SERIES:
        raise Malformed("oversize", f"it answers {len(result)} series; at most {MOST_SERIES} are read", remedy=_LESS)
    series, odd = [], 0
    for row in result:
        found, bad = _series(row, "value" if kind == "vector" else "values")
        odd += bad
        if found.points:
            series.append(found)
    return Answer(series=series, odd=odd, warnings=_warnings(content.get("warnings")))


def read_retention(body: bytes) -> str:
    """How long a server keeps what it scraped, as it says itself at /api/v1/status/runtimeinfo; "" if it does not."""
    try:
        data = _object(body).get("data")
    except Malformed:
        return ""
    told = data.get("storageRetention") if isinstance(data, dict) else None
    return told[:40] if isinstance(told, str) else ""


def told_by(body: bytes) -> tuple[str, str]:
    """The kind of an error (such as "timeout") and its text, of an answer that is none; "" where it does not say."""
    try:
        content = _object(body)
    except Malformed:
        return "", ""
    kind, text = (str(content.get(name, "")) for name in ("errorType", "error"))
    return kind, " ".join(text.split())[:MOST_TOLD_CHARS]


_LESS = "ask for less at a time with --match, such as --match cluster=a, or a part of the span"


def _object(body: bytes) -> dict[str, object]:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _garbage("it is no JSON") from error
    if not isinstance(content, dict):
        raise _garbage("it is no object")
    return content


def _garbage(why: str) -> Malformed:
    return Malformed("garbage", f"it does not answer as Prometheus does: {why}", remedy=_NOT_PROMETHEUS)


def _series(row: object, key: str) -> tuple[Found, int]:
    """And how many of its points are none that can be counted."""
    if not isinstance(row, dict) or not isinstance(labels := row.get("metric"), dict):
        raise _garbage("a series has no labels")
    if not all(isinstance(value, str) for value in labels.values()):
        raise _garbage("a label is no text")
    if key not in row:
        # a native histogram stands under another name; none of ours is one
        return Found(labels, ()), 1
    pairs = [row[key]] if key == "value" else row[key]
    if not isinstance(pairs, list):
        raise _garbage("a series has no list of points")
    points = [_point(pair) for pair in pairs]
    good = tuple(point for point in points if point is not None)
    return Found(labels, good), len(points) - len(good)


def _point(pair: object) -> tuple[float, float] | None:
    if not isinstance(pair, list) or len(pair) != len(("time", "value")):
        raise _garbage("a point is not a time and a value")
    at, text = pair
    if isinstance(at, bool) or not isinstance(at, int | float) or not isinstance(text, str):
        raise _garbage("a point is not a time and a value")
    try:
        seconds, value = float(at), float(text)
    except (ValueError, OverflowError) as error:
        raise _garbage("a value is no number") from error
    return (seconds, value) if math.isfinite(seconds) and 0 <= value <= MOST_AMOUNT else None


def _warnings(listed: object) -> Sequence[str]:
    texts = listed if isinstance(listed, list) else []
    return tuple(" ".join(str(text).split())[:MOST_TOLD_CHARS] for text in texts[:MOST_WARNINGS])
