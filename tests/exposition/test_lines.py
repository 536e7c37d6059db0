"""One line of text, read: the cases that Prometheus 2.42 and promtool 2.42 were asked about."""

import pytest

from exporter.exposition.lines import MetadataLine, PassedLine, Reason, SampleLine, is_value, read_line

SAMPLES = {
    # by line, what is read: series, value, timestamp, and whether an exemplar was cut off
    b"foo 1": (b"foo", b"1", b"", False),
    b"  foo 1": (b"foo", b"1", b"", False),  # Prometheus takes the blanks into the name and refuses the scrape
    b"foo 1 ": (b"foo", b"1", b"", False),  # promtool expects a timestamp after the blank
    b"foo\t1": (b"foo", b"1", b"", False),
    b'foo {a="b"} 1': (b'foo {a="b"}', b"1", b"", False),
    b'foo{a="b"}1': (b'foo{a="b"}', b"1", b"", False),
    b'foo{ a = "b" , c="d" , } 1': (b'foo{ a = "b" , c="d" , }', b"1", b"", False),
    b"foo{} 1": (b"foo{}", b"1", b"", False),
    b'foo{a="x\\n\\\\\\""} 1': (b'foo{a="x\\n\\\\\\""}', b"1", b"", False),
    b'foo{a="} 7 # {"} 1': (b'foo{a="} 7 # {"}', b"1", b"", False),
    b'foo{a="b\rc"} 1': (b'foo{a="b\rc"}', b"1", b"", False),
    'foo{a="Grüße"} 1'.encode(): ('foo{a="Grüße"}'.encode(), b"1", b"", False),
    b"foo:bar 1": (b"foo:bar", b"1", b"", False),
    b"foo 1 123": (b"foo", b"1", b" 123", False),
    b"foo 1 123 ": (b"foo", b"1", b" 123", False),
    b"foo 1 9223372036854775807": (b"foo", b"1", b" 9223372036854775807", False),
    b"foo 1 " + b"0" * 5000 + b"7": (b"foo", b"1", b" " + b"0" * 5000 + b"7", False),
    b"foo 1\r": (b"foo", b"1", b"", False),
    b'foo{a="b"} 1 # {t="x"} 1': (b'foo{a="b"}', b"1", b"", True),
    b'foo{a="b"} 1 5 # {t="x"} 1 2': (b'foo{a="b"}', b"1", b" 5", True),
}
REJECTED = {
    # issue 7, line 36: Prometheus takes these, and node-exporter ends with a panic when its textfile collector does
    b'foo{__x="b"} 1': Reason.RESERVED_NAME,
    b'foo{a="b",__="c"} 1': Reason.RESERVED_NAME,
    b'foo{__name="b"} 1': Reason.RESERVED_NAME,
    b'foo{__name__="b",__x="c"} 1': Reason.RESERVED_NAME,
    b'foo{__x="b",__x="c"} 1': Reason.DUPLICATE_LABEL,
    b"foo{,} 1": Reason.SYNTAX,
    b'foo{a="b" c="d"} 1': Reason.SYNTAX,  # Prometheus does without the comma, promtool does not
    b'foo{a="b",,} 1': Reason.SYNTAX,
    b'foo{a="\\d"} 1': Reason.SYNTAX,  # only promtool minds
    b'foo{__name__="b"} 1': Reason.SYNTAX,
    b'foo{a="b\xff"} 1': Reason.SYNTAX,
    b'foo{a="b\0"} 1': Reason.SYNTAX,  # Prometheus would end the page here without a word
    b"# a comment \0": Reason.SYNTAX,
    b"foo{a='b'} 1": Reason.SYNTAX,
    b'foo{a="b"': Reason.SYNTAX,
    b'foo{a="b"}': Reason.SYNTAX,
    b"foo": Reason.SYNTAX,
    b'{a="b"} 1': Reason.SYNTAX,
    b'foo{a:b="c"} 1': Reason.SYNTAX,
    b"\xef\xbb\xbffoo 1": Reason.SYNTAX,
    "föö 1".encode(): Reason.SYNTAX,
    b"<html><body>Bad gateway</body></html>": Reason.SYNTAX,
    b"foo 1 -123": Reason.SYNTAX,  # promtool takes signed timestamps, Prometheus 2.42 fails the scrape
    b"foo 1 123.5": Reason.SYNTAX,
    b"foo 1 9223372036854775808": Reason.SYNTAX,
    b"foo 1 2 3": Reason.SYNTAX,
    b'foo{a="b"} ': Reason.SYNTAX,
    b"foo +nan": Reason.VALUE,
    b"foo 1e999": Reason.VALUE,
    b"foo 1_0": Reason.VALUE,
    b"foo 0x1p3": Reason.VALUE,
    b"foo 1e": Reason.VALUE,
    b"foo .": Reason.VALUE,
    b"foo 1\x0b": Reason.VALUE,
    "foo \u0661".encode(): Reason.VALUE,
    b'foo{a="b"} {1': Reason.VALUE,
    b'foo{a="b"} ERROR - FAILED TO CONVERT': Reason.VALUE,
    b"foo 1 " + b"1" * 5000: Reason.SYNTAX,  # more digits than Python reads
    b'foo{a="b",a="c"} 1': Reason.DUPLICATE_LABEL,
    b'foo{a="",a="c"} 1': Reason.DUPLICATE_LABEL,
    b'foo{"a.b"="c"} 1': Reason.UTF8_NAME,
    b'foo{x="y", "a.b"="c"} 1': Reason.UTF8_NAME,
    b'{"foo.bar",a="b"} 1': Reason.UTF8_NAME,
    b"# HELP foo a\\b": Reason.SYNTAX,
    b"# HELP foo x\\": Reason.SYNTAX,
    b"# HELP 1x foo": Reason.SYNTAX,
    b"# HELP foo{ x": Reason.SYNTAX,
    b"# HELP foo \xff": Reason.SYNTAX,
    b"# HELP": Reason.SYNTAX,
    b"# TYPE foo": Reason.SYNTAX,
    b"# TYPE foo unknown": Reason.SYNTAX,
    b"# TYPE foo{ gauge": Reason.SYNTAX,
}
METADATA = {
    b"# HELP foo Some text.": b"# HELP foo Some text.",
    b"# HELP foo   blanks kept ": b"# HELP foo   blanks kept ",
    b"# HELP foo": b"# HELP foo",
    b"# HELP foo a\\\\b\\n": b"# HELP foo a\\\\b\\n",
    b"#HELP foo x": b"# HELP foo x",  # promtool reads it as metadata, Prometheus as a comment
    b"#\tHELP foo x": b"# HELP foo x",
    b"# TYPE foo gauge": b"# TYPE foo gauge",
    b"# TYPE foo  gauge ": b"# TYPE foo gauge",  # Prometheus fails the scrape for the second blank
    b"# TYPE foo Gauge": b"# TYPE foo gauge",
    b"# TYPE foo counter\r": b"# TYPE foo counter",
}
PASSED = [b"", b"  ", b"#", b"# ", b"## HELPFUL", b"# a comment", b"# EOF", b"# UNIT foo seconds", b"# HELPX foo bar"]


@pytest.mark.parametrize("line", SAMPLES)
def test_a_sample(line: bytes) -> None:
    found = read_line(line)
    assert isinstance(found, SampleLine)
    assert (found.series, found.value, found.timestamp, found.had_exemplar) == SAMPLES[line]


@pytest.mark.parametrize("line", REJECTED)
def test_a_line_that_cannot_go_out(line: bytes) -> None:
    assert read_line(line) == REJECTED[line]


@pytest.mark.parametrize("line", METADATA)
def test_metadata(line: bytes) -> None:
    found = read_line(line)
    assert isinstance(found, MetadataLine)
    assert found.line == METADATA[line]


@pytest.mark.parametrize("line", PASSED)
def test_what_is_no_business_of_ours_passes(line: bytes) -> None:
    assert read_line(line) == PassedLine(line)


@pytest.mark.parametrize(
    "text", ["0", "-1", "+1", "1.", ".5", "1e5", "1E-5", "NaN", "nan", "Inf", "+inf", "-INFINITY", "1e-400"]
)
def test_values(text: str) -> None:
    assert is_value(text.encode())


@pytest.mark.parametrize(
    "line",
    [
        b'foo{a="' + b"\\\\" * 200_000,
        b"foo{" + b'a="b",' * 50_000 + b"!",
        b"foo{" + b" " * 200_000 + b"!",
        b'foo{a="b"' + b" " * 200_000 + b"!",
        b"foo" + b" " * 200_000 + b"!",
        b"# HELP foo " + b"\\\\" * 200_000 + b"\\",
        b"{" + b'"' * 200_001,
    ],
    ids=["escapes", "labels", "blanks", "blanks-after-label", "gap", "help", "quotes"],
)
def test_a_long_hostile_line_is_refused_without_backtracking(line: bytes) -> None:
    # quadratic time would be minutes here
    assert isinstance(read_line(line, is_limited=False), Reason)


def of_length(length: int, before: bytes, after: bytes, by: bytes = b"x") -> bytes:
    return before + by * (length - len(before) - len(after)) + after


# issue 7, line 22
@pytest.mark.parametrize(
    ("before", "after", "by"),
    [
        (b'foo{a="', b'"} 1', b"x"),
        (b'foo{a="', b'"} 1', b"}"),
        (b"foo 0.", b"", b"1"),
        (b"# HELP foo ", b"", b"x"),
        (b"# ", b"", b"x"),
        (b"foo 1", b"", b"\r"),
        (b"", b"", b" "),
    ],
)
def test_a_line_may_be_so_long_and_no_longer(before: bytes, after: bytes, by: bytes) -> None:
    longest = of_length(64 * 1024, before, after, by)
    assert not isinstance(read_line(longest), Reason)
    assert read_line(of_length(64 * 1024 + 1, before, after, by)) == Reason.SYNTAX
    assert not isinstance(read_line(of_length(64 * 1024 + 1, before, after, by), is_limited=False), Reason)


# issue 7, line 22
def test_a_sample_may_have_so_many_labels_and_no_more() -> None:
    def sample(count: int) -> bytes:
        return b"foo{" + b",".join(b'l%d=""' % number for number in range(count)) + b"} 1"

    assert isinstance(read_line(sample(128)), SampleLine)
    assert read_line(sample(129)) == Reason.SYNTAX
    # a file of our own writing may have more
    assert isinstance(read_line(sample(129), is_limited=False), SampleLine)
