"""A span of time, its pieces, and how people write one. Moments are milliseconds of Unix time throughout."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_UNIX = re.compile(r"[0-9]{1,11}(?:\.[0-9]+)?")
_MOST_DIGITS = 12
# A year of days is 366 pieces; a piece is at most a day, so that no query touches more samples than that.
MOST_DAYS = 366
_PIECES_MS = tuple(minutes * _UNITS_MS["m"] for minutes in (1, 5, 15, 30, 60, 120, 180, 360, 720, 1440))
_PIECES = 32  # about as many bars as a chart can show


@dataclass(frozen=True, slots=True)
class Span:
    """From one moment to another one, later than it."""

    from_ms: int
    to_ms: int

    @property
    def ms(self) -> int:
        """How long it is."""
        return self.to_ms - self.from_ms

    def cut(self, piece_ms: int) -> Iterator[Self]:
        """Pieces of this length, one after the other; the last one may be shorter."""
        for start in range(self.from_ms, self.to_ms, piece_ms):
            yield type(self)(start, min(start + piece_ms, self.to_ms))

    def pieces(self) -> Sequence[Self]:
        """Some thirty pieces, of a day at most: what is asked for at a time, and what a chart has a bar for."""
        usual = (piece for piece in _PIECES_MS if self.ms <= piece * _PIECES)
        return tuple(self.cut(next(usual, _PIECES_MS[-1])))


def written(ms: int) -> str:
    """A moment for people and for programs: RFC 3339, in UTC, in whole seconds."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def long_written(ms: int) -> str:
    """A duration for people, in its two largest units: `7d`, `1d 6h`, `45s`."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ms = divmod(ms, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "less than 1s"


def read_duration(text: str) -> int:
    """`7d`, `12h`, `1h30m`, as PromQL writes durations, in milliseconds.

    Raises:
        ValueError: it is none, or no time at all.
    """
    is_long = len(text) > _MOST_DIGITS
    milliseconds = 0 if is_long else sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if not milliseconds or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration")
    return milliseconds


def read_moment(text: str) -> int:
    """`2026-11-01`, `2026-11-01T08:00`, with `Z` or an offset, or seconds of Unix time. Without a zone it is UTC.

    Raises:
        ValueError: it is none of these.
    """
    if _UNIX.fullmatch(text):
        return int(float(text) * 1000)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ms = int(moment.timestamp() * 1000)
    if ms < 0:
        raise ValueError(text)
    return ms


def make_span(*, since: str | None, start: str | None, end: str | None, now_ms: int) -> Span:
    """What `--since`, `--from` and `--to` say together; the last seven days where they say nothing.

    Raises:
        ValueError: one line that names the flag.
    """
    if since and start:
        raise ValueError("--since and --from both say where the span begins; give one of them")
    takes = "a moment, such as 2026-11-01 or 2026-11-01T08:00Z"
    to_ms = min(_read("--to", end, read_moment, takes) or now_ms, now_ms)
    begin = _read("--from", start, read_moment, takes)
    if begin is None:
        begin = to_ms - (_read("--since", since or "7d", read_duration, "a duration, such as 12h, 7d or 4w") or 0)
    span = Span(begin, to_ms)
    if span.ms <= 0:
        raise ValueError(f"--from: the span ends ({written(to_ms)}) before it begins ({written(begin)})")
    if span.ms > MOST_DAYS * _UNITS_MS["d"] or begin < 0:
        raise ValueError(f"--since: the span has {span.ms // _UNITS_MS['d']} days; at most {MOST_DAYS} are counted")
    return span


def _read(flag: str, text: str | None, reader: Callable[[str], int], takes: str) -> int | None:
    if text is None:
        return None
    try:
        return reader(text)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{flag}: {text!r} is not allowed; it takes {takes}") from error
