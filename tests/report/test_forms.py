"""The forms that a report is written in, with names that mean harm."""

import csv
import io
import json
import re
from base64 import b64encode
from decimal import Decimal
from hashlib import sha256
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.report.costs import Prices
from exporter.report.formatting import change, fit, name_of, number, percent, width
from exporter.report.forms import render_csv, render_json, render_table
from exporter.report.groups import GroupBy
from exporter.report.html_page import MOST_BARS, MOST_ROWS, bars_of_groups, columns_of_time, render_page
from exporter.report.report import make_report
from exporter.report.rows import Amounts
from tests.report.made import HOUR, KWH, ROWS, collected, made, row

PRICED = Prices(of_any=Decimal("2.5"))
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07",
    "a\r\nb,c",
    '"><script>alert(1)</script>',
    "</style><img src=x onerror=alert(1)>",
    "=cmd|' /C calc'!A0",
    "\u202eevil",
    "x" * 5000,
)
TABLE = """\
GPUs from 2026-10-26T07:33:20Z to 2026-10-27T07:33:20Z (1d), by namespace

namespace  GPU-hours   used  used %   idle   kWh   cost  idle cost
---------  ---------  -----  ------  -----  ----  -----  ---------
vision         24.00  16.00     67%   2.00  7.00  60.00       5.00
books          10.00   0.50      5%   9.00  0.50  25.00      22.50
(nobody)        0.00   0.00       -   0.00  0.25   0.00       0.00
---------  ---------  -----  ------  -----  ----  -----  ---------
total          34.00  16.50     49%  11.00  7.75  85.00      27.50

47% of the 72.00 GPU-hours that there were was held; 38.00 were free, at a cost of 95.00.

Workloads that hold most and use least:

workload                   not used  GPU-hours   used  used %   cost  idle cost
-------------------------  --------  ---------  -----  ------  -----  ---------
books/StatefulSet/jupyter      9.50      10.00   0.50      5%  25.00      22.50
vision/Job/train               8.00      24.00  16.00     67%  60.00       5.00

idle: hours in which a GPU was held and its activity was below the exporter's --accounting.idle-below.
not used: hours held whose use was known, less those used: all idle hours, and half of a half active hour.
"""


def test_the_table() -> None:
    assert render_table(made(prices=PRICED), None) == TABLE


@pytest.mark.parametrize("columns", [70, 80, 200])
def test_the_table_fits_a_terminal(columns: int) -> None:
    rows = [
        *ROWS,
        row("a-namespace-of-a-very-long-name-" * 2, "p", Amounts(HOUR)),
        row("名前空間" * 12, "p", Amounts(HOUR)),
    ]
    text = render_table(made(prices=PRICED, rows=rows), columns)
    for line in text.splitlines()[2:10]:
        assert width(line) <= columns, line


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("columns", [None, 80])
def test_no_name_moves_a_cursor(name: str, columns: int | None) -> None:
    by = GroupBy("label", "team")
    text = render_table(made(by, rows=[row("a", name, Amounts(HOUR), label_team=name)]), columns)
    plain = render_table(made(by, rows=[row("a", "b", Amounts(HOUR), label_team="c")]), columns)
    assert all(char.isprintable() for char in text.replace("\n", ""))
    assert text.count("\n") == plain.count("\n")


def test_csv_has_a_line_for_each_group() -> None:
    rows = list(csv.DictReader(io.StringIO(render_csv(made(prices=PRICED)), newline="")))
    assert rows[0] == {
        "from": "2026-10-26T07:33:20Z",
        "to": "2026-10-27T07:33:20Z",
        "namespace": "vision",
        "gpu_hours_held": "24",
        "gpu_hours_used": "16",
        "gpu_hours_idle": "2",
        "energy_kwh": "7",
        "cost": "60",
        "idle_cost": "5",
        "gpu_hours_free": "0",
        "free_cost": "0",
        "gpu_hours_use_unknown": "0",
        "gpu_hours_idle_unknown": "0",
    }
    assert [found["namespace"] for found in rows] == ["vision", "books", ""]
    assert next(csv.DictReader(io.StringIO(render_csv(made()))))["cost"] == ""


@pytest.mark.parametrize("name", [*HOSTILE, "+1", "-1", "@SUM(A1)", "＝1", "\t=1", "plain", "a,b", ' "q" ', "a;b"])  # noqa: RUF001 - full-width
def test_no_name_is_a_formula_or_breaks_a_line(name: str) -> None:
    text = render_csv(made(rows=[row(name, "p", Amounts(HOUR))]))
    _, cells, _of_nobody = csv.reader(io.StringIO(text, newline=""))
    assert not cells[2].startswith(("=", "+", "-", "@", "\t", "\r", "＝"))  # noqa: RUF001 - full-width
    assert len(cells) == 13
    assert text.count("\r\n") == 3
    if name in {"plain", "a,b", ' "q" ', "a;b"}:
        assert cells[2] == name


def test_json_tells_all_of_it() -> None:
    content = json.loads(render_json(made(prices=PRICED)))
    assert content["by"] == "namespace"
    assert content["total"] == {
        "gpu_hours_held": 34,
        "gpu_hours_used": 16.5,
        "gpu_hours_idle": 11,
        "energy_kwh": 7.75,
        "cost": 85,
        "idle_cost": 27.5,
        "gpu_hours_free": 38,
        "free_cost": 95,
        "gpu_hours_use_unknown": 0,
        "gpu_hours_idle_unknown": 0,
    }
    assert [group["name"] for group in content["groups"]] == ["vision", "books", None]
    assert sum(moment["gpu_hours_held"] for moment in content["over_time"]) == pytest.approx(34, abs=1e-4)
    assert content["hold_most_use_least"][0]["name"] == "books/StatefulSet/jupyter"
    assert content["capacity_gpu_hours"] == 72
    assert content["notes"] == []


class Page(HTMLParser):
    """What elements and what attributes a browser would see."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_needs_and_allows_nothing_but_its_style() -> None:
    text = render_page(made(prices=PRICED))
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "form", "base", "a", "foreignobject"}
    assert not page.attributes.keys() & {"href", "src", "style", "action", "srcset", "onclick", "onload"}
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    (policy,) = (value for value in page.attributes["content"] if "default-src" in value)
    digest = b64encode(sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "url(" not in style
    assert "@import" not in style


# issue 12, "Must show" 5
@settings(max_examples=15)
@given(st.lists(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=20), max_size=30))
def test_names_on_the_page_are_text(names: list[str]) -> None:
    plain = Page(render_page(made(rows=[*ROWS, *(row("a", f"p{i}", Amounts(HOUR)) for i in range(40))])))
    rows = [*ROWS, *(row(name, name, Amounts(HOUR), label_team=name) for name in names)]
    for by in (GroupBy("namespace"), GroupBy("label", "team"), GroupBy("label", names[0] if names else "x")):
        page = Page(render_page(made(by, rows=rows)))
        assert page.tags - {"ul", "li"} <= plain.tags
        assert page.attributes.keys() <= plain.attributes.keys()
        assert all(char.isprintable() or char == "\n" for char in page.text)


def test_a_page_of_very_many_groups_says_how_many_it_leaves_out() -> None:
    text = render_page(made(rows=[row(f"n{i}", "p", Amounts(HOUR)) for i in range(MOST_ROWS + 7)]))
    assert text.count("<tr>") == 1 + MOST_ROWS + 1 + 1 + 1 + 10
    assert "and 8 more, which the total has too" in text


def test_charts_are_well_formed_and_within_their_frame() -> None:
    rows = [row(f"{HOSTILE[2]}{i}", "p", Amounts(i * HOUR, i * HOUR * 2)) for i in range(30)]
    report = made(rows=rows)
    for chart in (bars_of_groups(report), columns_of_time(report.moments)):
        svg = ET.fromstring(chart)  # noqa: S314 - our own
        wide, high = map(float, svg.attrib["viewBox"].split()[2:])
        for rect in svg.iter("rect"):
            x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= wide
            assert 0 <= y <= y + h <= high + 0.1
    assert "9 others" in bars_of_groups(report)
    assert bars_of_groups(made(rows=[])) == columns_of_time([]) == ""


# issue 22, line 18
@pytest.mark.parametrize("top", [None, 15])
def test_the_bars_of_300_workloads_are_as_long_as_the_longest_of_them_asks(top: int | None) -> None:
    rows = [row("a", f"w{i}", Amounts((400 - i) * HOUR)) for i in range(300)]
    report = make_report(collected(rows), GroupBy("pod"), Prices(), top=top)
    svg = ET.fromstring(bars_of_groups(report))  # noqa: S314 - our own
    bars = [float(rect.attrib["width"]) for rect in svg.iter("rect") if rect.attrib["class"] == "held"]
    assert len(bars) == (top or MOST_BARS)
    assert max(bars) == pytest.approx(720 - 220 - 74)
    assert min(bars) > max(bars) / 2
    assert f"{300 - len(bars)} others" in bars_of_groups(report)


# issue 22, line 27
def test_hours_neither_idle_nor_busy_have_a_column_and_a_sentence() -> None:
    rows = [row("ml", "p", Amounts(10 * HOUR, 4 * HOUR, HOUR, KWH, observed=10 * HOUR, idle_unknown=6 * HOUR))]
    report = made(rows=rows)
    assert report.total.costs.idle == made(rows=[row("ml", "p", Amounts(10 * HOUR, idle=HOUR))]).total.costs.idle
    table, page = render_table(report, None), render_page(report)
    assert re.search(r"idle  idle unknown .*\n.*\nml +10\.00 +4\.00 +40% +1\.00 +6\.00 ", table)
    for text in (table, page):
        assert "idle unknown: hours in which several held a GPU" in text
    assert "idle unknown" not in render_table(made(), None)


# issue 22, lines 18 and 28
def test_hours_whose_use_is_not_known_have_a_column_and_a_sentence() -> None:
    rows = [row("ml", "p", Amounts(95.98 * HOUR, 42.27 * HOUR, HOUR, KWH, observed=88.06 * HOUR))]
    report = made(rows=rows)
    table, page = render_table(report, None), render_page(report)
    assert re.search(r"used %  use unknown .*\n.*\nml +95.98  42.27 +48% +7.92 ", table)
    (line,) = report.wasteful
    assert line.unused_hours + line.hours.used + line.use_unknown_hours == pytest.approx(line.hours.held)
    for text in (table, page):
        assert "use unknown: hours held in which nobody saw the use" in text
    assert json.loads(render_json(report))["total"]["gpu_hours_use_unknown"] == pytest.approx(7.92)
    assert "use unknown" not in render_table(made(), None) + render_page(made())


@given(st.floats(0, 1e12), st.floats(0, 1e12))
def test_the_bars_of_any_amount_fit(held: float, used: float) -> None:
    report = made(rows=[row("a", "p", Amounts(held, used))])
    for chart in (bars_of_groups(report), columns_of_time(report.moments)):
        svg = ET.fromstring(chart or "<svg/>")  # noqa: S314 - our own
        for rect in svg.iter("rect"):
            assert 0 <= float(rect.attrib["height"]) <= 220
            assert 0 <= float(rect.attrib["width"]) <= 720


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0.00"),
        (0.001, "<0.01"),
        (0.005, "0.01"),
        (1.005, "1.00"),
        (99.99, "99.99"),
        (100, "100.0"),
        (123.456, "123.5"),
        (10_000, "10,000"),
        (12345.6, "12,346"),
    ],
)
def test_numbers(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(("value", "shown"), [(0.5, "+0.50"), (0, "0.00"), (-0.5, "-0.50"), (-0.001, "-<0.01")])
def test_a_change_has_its_sign(value: float, shown: str) -> None:
    assert change(value) == shown


@pytest.mark.parametrize(("ratio", "shown"), [(None, "-"), (0, "0%"), (0.126, "13%"), (1.5, "150%")])
def test_a_part_is_shown_in_whole_percents(ratio: float | None, shown: str) -> None:
    assert percent(ratio) == shown


@given(st.text(), st.integers(3, 60))
def test_a_text_is_fitted_to_its_columns(text: str, columns: int) -> None:
    assert width(fit(text, columns)) <= columns
    assert width(fit(text, columns)) >= columns - 1 or "…" in fit(text, columns)


@pytest.mark.parametrize(
    ("text", "columns", "shown"),
    [
        ("abc", 5, "abc  "),
        ("abcde", 5, "abcde"),
        ("abcdef", 5, "ab…ef"),
        ("abcdef", 4, "ab…f"),
        ("e\u0301a", 3, "e\u0301a "),
        pytest.param("漢字漢字", 6, "漢…字 ", id="a sign of two columns is not cut in two"),
    ],
)
def test_a_longer_text_keeps_both_its_ends(text: str, columns: int, shown: str) -> None:
    assert fit(text, columns) == shown


@pytest.mark.parametrize(
    ("by", "words"),
    [("pod", "(nobody)"), ("node", "(unknown)"), ("queue", "(no queue)"), ("label:a", "(without this label)")],
)
def test_rows_without_a_group_have_words_of_what_is_missing(by: str, words: str) -> None:
    assert name_of(None, by) == words
    assert name_of("a", by) == "a"
