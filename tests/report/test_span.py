"""Spans: how they are written, and the pieces that they are asked for in."""

from datetime import UTC, tzinfo
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.report.span import MOST_DAYS, Span, long_written, make_span, read_duration, read_moment, written

HOUR, DAY = 3_600_000, 86_400_000
NOW = 1_793_000_000_000


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("7d", 7 * DAY),
        ("1w", 7 * DAY),
        ("1h30m", HOUR * 3 // 2),
        ("90s", 90_000),
        ("500ms", 500),
        ("1ms", 1),
        ("1s1ms", 1001),
        ("2m", 120_000),
        ("00000000001d", DAY),
        ("1d12h", DAY * 3 // 2),
    ],
)
def test_durations_are_read_as_promql_writes_them(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "7", "d", "7 d", "-7d", "0d", "1.5h", "7y", "1d ", "9" * 13 + "d", "000000000001d", "٣d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no duration"):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-11-01", "2026-11-01T00:00:00Z"),
        ("2026-11-01T08:00", "2026-11-01T08:00:00Z"),
        ("2026-11-01T08:00:00Z", "2026-11-01T08:00:00Z"),
        ("2026-11-01T08:00+02:00", "2026-11-01T06:00:00Z"),
        ("1793000000.5", "2026-10-26T07:33:20Z"),
    ],
)
def test_moments_are_read_with_a_zone_or_in_utc(text: str, shown: str) -> None:
    assert written(read_moment(text)) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (7 * DAY, "7d"),
        (DAY + 6 * HOUR + 1000, "1d 6h"),
        (HOUR + 5000, "1h 5s"),
        (61_000, "1m 1s"),
        (45_000, "45s"),
        (1000, "1s"),
        (999, "less than 1s"),
    ],
)
def test_durations_are_written_in_two_units(ms: int, shown: str) -> None:
    assert long_written(ms) == shown


@pytest.mark.parametrize(
    ("since", "start", "end", "span"),
    [
        (None, None, None, Span(NOW - 7 * DAY, NOW)),
        ("1h", None, None, Span(NOW - HOUR, NOW)),
        ("1h", None, "2026-10-01", Span(read_moment("2026-10-01") - HOUR, read_moment("2026-10-01"))),
        (None, "2026-10-01", None, Span(read_moment("2026-10-01"), NOW)),
        # what has not come yet is not asked for
        (None, "2026-10-01", "2099-01-01", Span(read_moment("2026-10-01"), NOW)),
    ],
)
def test_the_flags_say_a_span_together(since: str | None, start: str | None, end: str | None, span: Span) -> None:
    assert make_span(since=since, start=start, end=end, now_ms=NOW) == span


@pytest.mark.parametrize(
    ("since", "start", "end", "says"),
    [
        ("1h", "2026-10-01", None, "give one of them"),
        ("soon", None, None, "--since: 'soon' is not allowed"),
        (None, "yesterday", None, "--from: 'yesterday' is not allowed"),
        (None, None, "1969-12-31", "--to: '1969-12-31' is not allowed"),
        (None, "2026-10-02", "2026-10-01", "before it begins"),
        (None, "2026-10-02", "2026-10-02", "before it begins"),
        ("367d", None, None, f"has 367 days; at most {MOST_DAYS}"),
        ("400d", None, None, f"at most {MOST_DAYS}"),
        ("7d", None, "1970-01-02", "at most"),
    ],
)
def test_a_span_that_is_none_is_refused_in_one_line(
    since: str | None, start: str | None, end: str | None, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        make_span(since=since, start=start, end=end, now_ms=NOW)
    assert "\n" not in str(refused.value)


@given(st.integers(0, 10**13), st.integers(1, MOST_DAYS * DAY))
def test_pieces_make_the_span_and_are_neither_many_nor_long(start: int, long: int) -> None:
    span = Span(start, start + long)
    pieces = span.pieces()
    assert (pieces[0].from_ms, pieces[-1].to_ms) == (span.from_ms, span.to_ms)
    assert all(one.to_ms == after.from_ms for one, after in pairwise(pieces))
    assert all(0 < piece.ms <= DAY for piece in pieces)
    assert len(pieces) <= max(32, -(-long // DAY))


@pytest.mark.parametrize(
    ("minutes", "next_minutes"),
    [*pairwise((1, 5, 15, 30, 60, 120, 180, 360, 720, 1440)), (1440, 1440)],
)
def test_a_span_is_cut_in_at_most_32_round_pieces_of_a_day_at_most(minutes: int, next_minutes: int) -> None:
    ms = 32 * minutes * 60_000
    assert {piece.ms for piece in Span(0, ms).pieces()} == {minutes * 60_000}
    assert Span(0, ms + 1).pieces()[0].ms == next_minutes * 60_000


def test_the_longest_span_is_a_leap_year() -> None:
    span = make_span(since=f"{MOST_DAYS}d", now_ms=NOW)
    assert span.ms == 366 * DAY
    assert len(span.pieces()) == 366


def test_a_span_begins_in_1970_or_later() -> None:
    assert make_span(since="1d", end="1970-01-02", now_ms=NOW) == Span(0, DAY)
    assert make_span(start="0", end="1970-01-02", now_ms=NOW) == Span(0, DAY)
    with pytest.raises(ConfigError, match="--since: the span has 1 days"):
        make_span(since="24h1ms", end="1970-01-02", now_ms=NOW)
    with pytest.raises(ValueError, match="1969-12-31T23:59:59"):
        read_moment("1969-12-31T23:59:59.999Z")
    assert read_moment("1970-01-01T00:00Z") == 0


def test_a_span_keeps_the_zone_in_which_people_read_it() -> None:
    span = make_span(start="2026-10-01", end="2026-10-03", now_ms=NOW, zone=BERLIN)
    for part in (*span.pieces(), *span.cut(HOUR), span.before(is_month=False), span.before(is_month=True)):
        assert part.zone is BERLIN
    assert span.shown() == ("2026-10-01T00:00:00+02:00", "2026-10-03T00:00:00+02:00")


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")


# issue 20, line 1
@pytest.mark.parametrize(
    ("month", "zone", "hours", "begins"),
    [
        ("2026-10", UTC, 744, "2026-10-01T00:00:00Z"),
        ("2026-10", BERLIN, 745, "2026-10-01T00:00:00+02:00"),
        ("2026-03", BERLIN, 743, "2026-03-01T00:00:00+01:00"),
        ("2026-03", NEW_YORK, 743, "2026-03-01T00:00:00-05:00"),
        ("2026-10", NEW_YORK, 744, "2026-10-01T00:00:00-04:00"),
        ("2026-02", BERLIN, 672, "2026-02-01T00:00:00+01:00"),
        ("2025-12", BERLIN, 744, "2025-12-01T00:00:00+01:00"),
    ],
)
def test_a_month_is_as_long_as_clocks_say(month: str, zone: tzinfo, hours: int, begins: str) -> None:
    span = make_span(month=month, now_ms=NOW + 40 * DAY, zone=zone)
    assert span.ms == hours * HOUR
    assert span.shown()[0] == begins
    pieces = span.pieces()
    assert sum(piece.ms for piece in pieces) == span.ms
    assert all(one.to_ms == other.from_ms for one, other in pairwise(pieces))
    # each begins at midnight, also the day after clocks changed
    assert {piece.shown()[0][11:19] for piece in pieces} == {"00:00:00"}
    before = span.before(is_month=True)
    assert before.to_ms == span.from_ms
    assert before.shown()[0][8:19] == "01T00:00:00"


def test_a_month_that_is_not_over_ends_now() -> None:
    span = make_span(month="2026-10", now_ms=NOW, zone=BERLIN)
    assert span.to_ms == NOW
    before = span.before(is_month=True)
    assert (before.shown()[0], before.ms) == ("2026-09-01T00:00:00+02:00", span.ms)
    week = make_span(since="7d", now_ms=NOW)
    assert week.before(is_month=False) == Span(NOW - 14 * DAY, NOW - 7 * DAY)


@pytest.mark.parametrize("text", ["2026-13", "2026-1", "26-10", "october", "9999-01", "1970-01", "2026-10-01"])
def test_what_is_no_month_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--month: "):
        make_span(month=text, now_ms=NOW)


def test_a_month_that_begins_now_has_not_begun_and_a_moment_later_it_has() -> None:
    begins = read_moment("2026-11-01")
    with pytest.raises(ConfigError, match="has not begun"):
        make_span(month="2026-11", now_ms=begins)
    assert make_span(month="2026-11", now_ms=begins + 1) == Span(begins, begins + 1)


def test_a_running_month_is_compared_with_one_month_at_most() -> None:
    span = make_span(month="2026-03", now_ms=read_moment("2026-03-30"))
    assert span.before(is_month=True) == Span(read_moment("2026-02-01"), read_moment("2026-03-01"))


@pytest.mark.parametrize("more", [{"since": "7d"}, {"start": "2026-10-01"}, {"end": "2026-10-02"}])
def test_a_month_stands_alone(more: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="without --since"):
        make_span(month="2026-10", now_ms=NOW, **more)  # type: ignore[arg-type]  # flags by name


def test_a_month_that_is_to_come_is_refused_by_the_clocks_of_the_zone() -> None:
    with pytest.raises(ConfigError, match="has not begun; it begins at 2026-11-01T00:00:00\\+01:00"):
        make_span(month="2026-11", now_ms=NOW, zone=BERLIN)


def test_a_moment_without_a_zone_goes_by_the_clocks_of_the_one_given() -> None:
    assert written(read_moment("2026-10-01", BERLIN)) == "2026-09-30T22:00:00Z"
    assert written(read_moment("2026-10-01T00:00Z", BERLIN)) == "2026-10-01T00:00:00Z"
