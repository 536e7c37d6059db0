"""Writing the text format: what is kept of it, and how much."""

import tracemalloc
from collections.abc import Iterator

import pytest

from exporter.exposition.families import (
    Family,
    Filled,
    Labels,
    escape,
    pieces,
    render,
    render_family,
    render_labels,
    render_number,
    render_units,
    unescape,
)
from exporter.model.slices import at_once

COUNTER = Family("a_total", "counter", 'Of "x".', ("x", "y"))
GAUGE = Family("b", "gauge", "Help.", ("x",))
TIMES = Family("t_seconds", "histogram", "Help.", ("le",))
OF_TIMES = ((("_bucket", "0.5"), 1.0), (("_bucket", "+Inf"), 2.0), (("_sum",), 0.75), (("_count",), 2.0))


@pytest.mark.parametrize(
    ("text", "escaped", "unescaped"),
    [
        ("plain", b"plain", "plain"),
        ("Grüße", "Grüße".encode(), "Grüße"),
        ('a"b', b'a\\"b', 'a"b'),
        ("a\\b", b"a\\\\b", "a\\b"),
        ("a\nb", b"a\\nb", "a\nb"),
        ("a\\nb", b"a\\\\nb", "a\\nb"),
        ('\\"\n\\', b'\\\\\\"\\n\\\\', '\\"\n\\'),
        # at a NUL Prometheus would stop to read; a lone surrogate is no UTF-8
        ("a\0b", "a\ufffdb".encode(), "a\ufffdb"),
        ("a\ud800b", b"a?b", "a?b"),
    ],
)
def test_a_label_value_is_escaped_and_read_back(text: str, escaped: bytes, unescaped: str) -> None:
    assert escape(text) == escaped
    assert unescape(escaped) == unescaped


@pytest.mark.parametrize(
    ("labels", "text"), [((), b""), ((("a", "1"),), b'a="1"'), ((("b", "2"), ("a", '"')), b'b="2",a="\\""')]
)
def test_labels_are_written_in_the_order_given(labels: Labels, text: bytes) -> None:
    assert render_labels(labels) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, b"0"),
        (-3.0, b"-3"),
        (1e15, b"1000000000000000"),
        (2.5, b"2.5"),
        (1e-7, b"1e-07"),
        (float("nan"), b"nan"),
        (float("-inf"), b"-inf"),
    ],
)
def test_a_number_is_written_without_a_needless_point(value: float, text: bytes) -> None:
    assert render_number(value) == text


@pytest.mark.parametrize(
    ("amount", "power", "text"),
    [
        (1500, 3, b"1.5"),
        (1000, 3, b"1"),
        (0, 3, b"0"),
        (100, 0, b"100"),
        (1, 9, b"0.000000001"),
        (1_050, 3, b"1.05"),
        (2**64, 9, b"18446744073.709551616"),
    ],
)
def test_units_are_written_exactly(amount: int, power: int, text: bytes) -> None:
    assert render_units(amount, power) == text


@pytest.mark.parametrize(
    ("filled", "text", "as_openmetrics"),
    [
        (Filled(GAUGE), b"", b""),
        (Filled(COUNTER, began=b"5"), b"", b""),
        (Filled(TIMES, began=b"5"), b"", b""),
        (
            Filled(GAUGE, ((("1",), 2.5), (("2",), 3.0)), began=b"5"),
            b'# HELP b Help.\n# TYPE b gauge\nb{x="1"} 2.5\nb{x="2"} 3\n',
            b'# HELP b Help.\n# TYPE b gauge\nb{x="1"} 2.5\nb{x="2"} 3\n',
        ),
        (
            Filled(Family("up", "gauge", "Help."), (((), 1.0),)),
            b"# HELP up Help.\n# TYPE up gauge\nup 1\n",
            b"# HELP up Help.\n# TYPE up gauge\nup 1\n",
        ),
        # a gauge keeps the whole of its name
        (
            Filled(Family("b_total", "gauge", "Help."), (((), 1.0),)),
            b"# HELP b_total Help.\n# TYPE b_total gauge\nb_total 1\n",
            b"# HELP b_total Help.\n# TYPE b_total gauge\nb_total 1\n",
        ),
        (
            Filled(COUNTER, ((("1", "2"), 7.0), (("3", "4"), 8.0)), began=b"5.5"),
            b'# HELP a_total Of "x".\n# TYPE a_total counter\na_total{x="1",y="2"} 7\na_total{x="3",y="4"} 8\n',
            (
                b'# HELP a Of \\"x\\".\n# TYPE a counter\na_total{x="1",y="2"} 7\na_created{x="1",y="2"} 5.5\n'
                b'a_total{x="3",y="4"} 8\na_created{x="3",y="4"} 5.5\n'
            ),
        ),
        (
            Filled(COUNTER, ((("1", "2"), 7.0),)),
            b'# HELP a_total Of "x".\n# TYPE a_total counter\na_total{x="1",y="2"} 7\n',
            b'# HELP a Of \\"x\\".\n# TYPE a counter\na_total{x="1",y="2"} 7\n',
        ),
        (
            Filled(TIMES, OF_TIMES, began=b"5"),
            (
                b'# HELP t_seconds Help.\n# TYPE t_seconds histogram\nt_seconds_bucket{le="0.5"} 1\n'
                b't_seconds_bucket{le="+Inf"} 2\nt_seconds_sum 0.75\nt_seconds_count 2\n'
            ),
            (
                b'# HELP t_seconds Help.\n# TYPE t_seconds histogram\nt_seconds_bucket{le="0.5"} 1\n'
                b't_seconds_bucket{le="+Inf"} 2\nt_seconds_sum 0.75\nt_seconds_count 2\nt_seconds_created 5\n'
            ),
        ),
        (
            Filled(TIMES, OF_TIMES[3:]),
            b"# HELP t_seconds Help.\n# TYPE t_seconds histogram\nt_seconds_count 2\n",
            b"# HELP t_seconds Help.\n# TYPE t_seconds histogram\nt_seconds_count 2\n",
        ),
        # written samples, of which only one has a moment
        (
            Filled(COUNTER, written=((b'x="1"', b"7", b"5"), (b'x="2"', b"8", b""))),
            b'# HELP a_total Of "x".\n# TYPE a_total counter\na_total{x="1"} 7\na_total{x="2"} 8\n',
            b'# HELP a Of \\"x\\".\n# TYPE a counter\na_total{x="1"} 7\na_created{x="1"} 5\na_total{x="2"} 8\n',
        ),
        (
            Filled(GAUGE, written=((b'x="1"', b"7", b""),)),
            b'# HELP b Help.\n# TYPE b gauge\nb{x="1"} 7\n',
            b'# HELP b Help.\n# TYPE b gauge\nb{x="1"} 7\n',
        ),
    ],
)
def test_a_family_is_written_in_both_formats(filled: Filled, text: bytes, as_openmetrics: bytes) -> None:
    assert render([filled, filled]) == 2 * text
    assert render([filled], is_open=True) == as_openmetrics
    assert at_once(pieces([filled, filled])) == [text, text]
    assert at_once(pieces([filled], is_open=True)) == [as_openmetrics]


def test_other_tasks_may_run_before_and_after_each_family() -> None:
    taken: list[str] = []

    def families() -> Iterator[Filled]:
        for name in "ab":
            taken.append(name)
            yield Filled(Family(name, "gauge", "Help."), (((), 1.0),))

    work = pieces(families())
    seen = [list(taken) for _ in iter(lambda: next(work, "done"), "done")]
    assert seen == [["a"], ["a"], ["a", "b"], ["a", "b"]]


# issue 7, line 24
def test_texts_that_upstreams_made_long_are_not_kept() -> None:
    """A model's name of 64 KB is a valid label value, and there are 1,024 places for texts."""

    def rendered(number: int) -> int:
        model = f"{number} " + "x" * 64_000
        return len(render_family("pod_gpu_info", "gauge", "Help.", ("modelName",), [((model,), 1.0)]))

    rendered(0)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        assert all(rendered(number) > 64_000 for number in range(200))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 1_000_000  # 200 of them were 25 MB
