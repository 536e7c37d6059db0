"""A span of time, its pieces, and the ways in which people write a span. Moments are milliseconds of Unix time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import pairwise
from typing import Self

from exporter.errors import ConfigError, read_flag

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DURATION = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_UNIX = re.compile(r"[0-9]{1,11}(?:\.[0-9]+)?")
_MONTH = re.compile(r"(20[0-9]{2})-(0[1-9]|1[0-2])")
_MOST_DIGITS = 12
# A year has 366 pieces. A piece is a day at most, so that no query reads the samples of more than a day.
MOST_DAYS = 366
_PIECES_MS = tuple(minutes * _UNITS_MS["m"] for minutes in (1, 5, 15, 30, 60, 120, 180, 360, 720, 1440))
_PIECES = 32  # about the number of bars that a chart can show


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, from one moment to a later one. Its days are those of `zone`, in which people read it."""

    from_ms: int
    to_ms: int
    zone: tzinfo = UTC

    @property
    def ms(self) -> int:
        """The span's length."""
        return self.to_ms - self.from_ms

    def cut(self, piece_ms: int) -> Iterator[Self]:
        """Consecutive pieces of this length; the last piece may be shorter."""
        for start in range(self.from_ms, self.to_ms, piece_ms):
            yield type(self)(start, min(start + piece_ms, self.to_ms), self.zone)

    def pieces(self) -> Sequence[Self]:
        """Some thirty pieces, of a day at most. One query asks for one piece, and a chart has a bar for each.

        A day on which clocks change has 23 or 25 hours.
        """
        piece_ms = next((piece for piece in _PIECES_MS if self.ms <= piece * _PIECES), _PIECES_MS[-1])
        if piece_ms != _PIECES_MS[-1]:
            return tuple(self.cut(piece_ms))
        first = datetime.fromtimestamp(self.from_ms / 1000, self.zone)
        starts = [self.from_ms]
        while starts[-1] < self.to_ms:
            # with a zone, `first + timedelta` counts by the zone's clocks
            starts.append(round((first + timedelta(days=len(starts))).timestamp() * 1000))
        return tuple(type(self)(start, min(end, self.to_ms), self.zone) for start, end in pairwise(starts))

    def shown(self) -> tuple[str, str]:
        """Both ends for people, in the span's zone."""
        return written(self.from_ms, self.zone), written(self.to_ms, self.zone)

    def before(self, *, is_month: bool) -> Self:
        """The preceding span of the same length.

        For a month it is the preceding month; for a month that still runs, an equally long part of the preceding month.
        """
        if not is_month:
            return type(self)(self.from_ms - self.ms, self.from_ms, self.zone)
        start = start_of_month(self.from_ms, -1, self.zone)
        is_over = self.to_ms == start_of_month(self.from_ms, 1, self.zone)
        end = self.from_ms if is_over else min(start + self.ms, self.from_ms)
        return type(self)(start, end, self.zone)


def start_of_month(ms: int, months: int, zone: tzinfo) -> int:
    """The moment at which a month begins by a zone's clocks: the month of `ms`, or the month `months` later."""
    moment = datetime.fromtimestamp(ms / 1000, zone)
    year, month = divmod(moment.year * 12 + moment.month - 1 + months, 12)
    return int(datetime(year, month + 1, 1, tzinfo=zone).timestamp() * 1000)


def written(ms: int, zone: tzinfo = UTC) -> str:
    """A moment as RFC 3339, in whole seconds. Programs get UTC, people their own zone."""
    return datetime.fromtimestamp(ms // 1000, zone).isoformat().replace("+00:00", "Z")


def long_written(ms: int) -> str:
    """A duration for people, in its two largest units: `7d`, `1d 6h`, `45s`."""
    parts = []
    for unit in ("d", "h", "m", "s"):
        count, ms = divmod(ms, _UNITS_MS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2]) or "less than 1s"


def read_duration(text: str) -> int:
    """The milliseconds of a duration as PromQL writes it: `7d`, `12h`, `1h30m`.

    Raises:
        ValueError: the text is no duration, or the duration is 0.
    """
    is_long = len(text) > _MOST_DIGITS
    milliseconds = 0 if is_long else sum(int(number) * _UNITS_MS[unit] for number, unit in _PART.findall(text))
    if not milliseconds or not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration")
    return milliseconds


def read_moment(text: str, zone: tzinfo = UTC) -> int:
    """The moment that a text names: `2026-11-01`, `2026-11-01T08:00`, with `Z` or an offset, or seconds of Unix time.

    A date without `Z` or an offset is by the clocks of `zone`.

    Raises:
        ValueError: the text is none of these.
    """
    if _UNIX.fullmatch(text):
        return int(float(text) * 1000)
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    ms = int(moment.timestamp() * 1000)
    if ms < 0:
        raise ValueError(text)
    return ms


def make_span(
    *,
    since: str | None = None,
    start: str | None = None,
    end: str | None = None,
    month: str | None = None,
    now_ms: int,
    zone: tzinfo = UTC,
) -> Span:
    """The span that `--since`, `--from`, `--to` and `--month` name; without any of them the last seven days.

    Raises:
        ConfigError: the flags name no span. Its one line names the flag.
    """
    if month and (since or start or end):
        raise ConfigError("--month says where the span begins and ends; give it without --since, --from and --to")
    if since and start:
        raise ConfigError("--since and --from both say where the span begins; give one of them")
    if month:
        return _span_of_month(month, now_ms, zone)
    moment = partial(read_moment, zone=zone)
    takes = "a moment, such as 2026-11-01 or 2026-11-01T08:00Z"
    to_ms = now_ms if end is None else min(read_flag("--to", end, moment, takes), now_ms)
    if start is not None:
        from_ms = read_flag("--from", start, moment, takes)
    else:
        from_ms = to_ms - read_flag("--since", since or "7d", read_duration, "a duration, such as 12h, 7d or 4w")
    span = Span(from_ms, to_ms, zone)
    if span.ms <= 0:
        raise ConfigError(f"--from: the span ends ({written(to_ms)}) before it begins ({written(from_ms)})")
    if span.ms > MOST_DAYS * _UNITS_MS["d"] or from_ms < 0:
        raise ConfigError(f"--since: the span has {span.ms // _UNITS_MS['d']} days; at most {MOST_DAYS} are counted")
    return span


def _span_of_month(month: str, now_ms: int, zone: tzinfo) -> Span:
    first_ms = read_flag("--month", month, partial(_read_month, zone=zone), "a month, such as 2026-10")
    span = Span(first_ms, min(start_of_month(first_ms, 1, zone), now_ms), zone)
    if span.ms <= 0:
        raise ConfigError(f"--month: {month} has not begun; it begins at {written(first_ms, zone)}")
    return span


def _read_month(text: str, zone: tzinfo) -> int:
    match = _MONTH.fullmatch(text)
    if not match:
        raise ValueError(text)
    return int(datetime(int(match[1]), int(match[2]), 1, tzinfo=zone).timestamp() * 1000)
