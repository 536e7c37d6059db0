"""The page's charts to the pixel, its tiles and its tables."""

import re
from decimal import Decimal

import pytest

from exporter.report.costs import Prices
from exporter.report.groups import GroupBy
from exporter.report.html_page import MOST_BARS, MOST_ROWS, bars_of_groups, columns_of_time, render_page
from exporter.report.report import Moment, make_report
from exporter.report.rows import Amounts, SpanFacts
from exporter.report.span import Span
from tests.report.made import HOUR, SPAN, collected, made, row

BARS = """\
<svg viewBox="0 0 720 52" role="img" aria-label="GPU-hours by namespace">
<g>
<title>vision: 24.00 GPU-hours held, 16.00 used</title>
<text class="name" x="212" y="13">vision</text>
<rect class="held" x="220.0" y="0.0" width="426.0" height="16.0"/>
<rect class="used" x="220.0" y="0.0" width="284.0" height="16.0"/>
<text x="652.0" y="13">24.00</text>
</g>
<g>
<title>books: 10.00 GPU-hours held, 0.50 used</title>
<text class="name" x="212" y="39">books</text>
<rect class="held" x="220.0" y="26.0" width="177.5" height="16.0"/>
<rect class="used" x="220.0" y="26.0" width="8.9" height="16.0"/>
<text x="403.5" y="39">10.00</text>
</g>
</svg>"""
COLUMNS = """\
<svg viewBox="0 0 720 220" role="img" aria-label="GPUs held and used over time">
<line x1="44" x2="720" y1="194.0" y2="194.0"/>
<text class="name" x="38" y="198.0">0</text>
<line x1="44" x2="720" y1="149.0" y2="149.0"/>
<text class="name" x="38" y="153.0">2</text>
<line x1="44" x2="720" y1="104.0" y2="104.0"/>
<text class="name" x="38" y="108.0">4</text>
<line x1="44" x2="720" y1="59.0" y2="59.0"/>
<text class="name" x="38" y="63.0">6</text>
<line x1="44" x2="720" y1="14.0" y2="14.0"/>
<text class="name" x="38" y="18.0">8</text>
<g>
<title>1970-01-02T00:00:00Z: 3.00 GPUs held, 1.50 used</title>
<rect class="held" x="45.0" y="126.5" width="336.0" height="67.5"/>
<rect class="used" x="45.0" y="160.2" width="336.0" height="33.8"/>
</g>
<g>
<title>1970-01-02T01:00:00Z: 7.00 GPUs held, 8.00 used</title>
<rect class="held" x="383.0" y="36.5" width="336.0" height="157.5"/>
<rect class="used" x="383.0" y="14.0" width="336.0" height="180.0"/>
</g>
<text x="44" y="212">1970-01-02T00:00:00Z</text>
<text class="name" x="720" y="212">1970-01-02T02:00:00Z</text>
</svg>"""
DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def by_line(chart: str) -> str:
    return chart.replace("><", ">\n<")


def test_a_bar_is_as_long_as_the_hours_held_with_those_used_on_it() -> None:
    assert by_line(bars_of_groups(made())) == BARS


def test_a_column_is_as_high_as_the_gpus_at_a_time() -> None:
    first, second = Span(DAY_MS, DAY_MS + 2 * HOUR_MS).cut(HOUR_MS)
    moments = [Moment(first, Amounts(3 * HOUR, 1.5 * HOUR)), Moment(second, Amounts(7 * HOUR, 8 * HOUR))]
    assert by_line(columns_of_time(moments)) == COLUMNS
    assert columns_of_time([Moment(first, Amounts())]) == ""
    # a piece of a second in a day still has a pixel
    short = [Moment(Span(0, 1000), Amounts(1.0)), Moment(Span(1000, DAY_MS), Amounts(1.0))]
    assert 'x="45.0" y="14.0" width="1.0" height="180.0"' in columns_of_time(short)


@pytest.mark.parametrize(
    ("gpus", "ticks"),
    [
        (0.04, ["0", "0.01", "0.02", "0.03", "0.04"]),
        (4, ["0", "1", "2", "3", "4"]),
        (4.1, ["0", "2", "4", "6", "8"]),
        (8.1, ["0", "2.5", "5", "7.5", "10"]),
        (10.1, ["0", "5", "10", "15", "20"]),
        (20.1, ["0", "10", "20", "30", "40"]),
        (40.1, ["0", "20", "40", "60", "80"]),
    ],
)
def test_the_numbers_beside_the_columns_are_round(gpus: float, ticks: list[str]) -> None:
    chart = columns_of_time([Moment(Span(0, HOUR_MS), Amounts(gpus * HOUR))])
    assert re.findall('x="38" y="[0-9.]+">([^<]+)<', chart) == ticks


def test_groups_after_the_twentieth_are_a_line_with_their_sum() -> None:
    rows = [row(f"n{number:02}", "p", Amounts(HOUR * (40 - number), HOUR)) for number in range(MOST_BARS + 2)]
    chart = by_line(bars_of_groups(made(rows=rows)))
    assert chart.startswith('<svg viewBox="0 0 720 546"')
    others = (
        '<text class="name" x="212" y="533">2 others</text>\n<text x="220" y="533">39.00 together, 2.00 used: no bar'
    )
    assert others in chart
    assert "other" not in bars_of_groups(made(rows=rows[:MOST_BARS]))
    folded = make_report(collected(rows), GroupBy("namespace"), Prices(), top=MOST_BARS + 1)
    assert "2 others" in bars_of_groups(folded)
    of_top = make_report(collected(rows), GroupBy("namespace"), Prices(), top=1)
    assert "21 others" in bars_of_groups(of_top)
    assert bars_of_groups(of_top).count("<rect") == 2


def test_a_group_that_only_used_has_a_bar_and_one_without_hours_has_none() -> None:
    chart = bars_of_groups(made(rows=[row("used", "p", Amounts(0.0, HOUR)), row("none", "p", Amounts(joules=1.0))]))
    assert ("used: 0.00 GPU-hours held, 1.00 used" in chart, "none" in chart) == (True, False)


def tiles(page: str) -> dict[str, str]:
    return dict(re.findall("<dt>([^<]*)</dt><dd>([^<]*)</dd>", page))


def test_the_tiles_have_the_totals() -> None:
    of_all = {
        "GPU-hours held": "34.00",
        "of all there were": "47%",
        "of them used": "49%",
        "GPU-hours idle": "11.00",
        "kWh": "7.75",
    }
    costs = {"cost": "85.00", "idle cost": "27.50", "free cost": "95.00"}
    assert tiles(render_page(made())) == of_all
    assert tiles(render_page(made(prices=Prices(of_any=Decimal("2.5"))))) == of_all | costs
    only_energy = tiles(render_page(made(prices=Prices(of_kwh=Decimal(2)))))
    assert only_energy == of_all | {"cost": "15.50"}
    rows = [row("ml", "p", Amounts(10 * HOUR, 2 * HOUR, HOUR, observed=8 * HOUR, idle_unknown=3 * HOUR))]
    unknown = tiles(render_page(made(rows=rows, facts=SpanFacts())))
    assert (unknown["use unknown"], unknown["idle unknown"]) == ("2.00", "3.00")
    assert "of all there were" not in unknown


def test_the_page_has_its_headings_only_over_something() -> None:
    page = render_page(made())
    assert re.findall("<h2>([^<]*)</h2>", page) == [
        "GPU-hours by namespace",
        "GPUs at a time",
        "Workloads that hold most and use least",
    ]
    assert "(1d), by namespace</p>" in page
    assert page.count('class="key held"') == 2
    nothing = render_page(made(rows=[], facts=SpanFacts()))
    assert re.findall("<h2>([^<]*)</h2>", nothing) == ["GPU-hours by namespace", "GPUs at a time"]
    assert 'class="key held"' not in nothing
    renamed = render_page(made(facts=SpanFacts(has_renamed=True)))
    assert '<h2>What could not be known</h2><ul class="notes"><li>Prometheus renames' in renamed


def test_a_compared_page_says_both_spans() -> None:
    compared = make_report(collected(), GroupBy("namespace"), Prices(), before=collected())
    begin, end = SPAN.shown()
    assert f"by namespace; before: {begin} to {end}</p>" in render_page(compared)
    assert "before:" not in render_page(made())


def test_a_table_has_a_foot_and_as_many_rows_as_anybody_reads() -> None:
    page = render_page(made())
    assert '<thead><tr><th scope="col">namespace</th>' in page
    assert '<tr><th scope="row">vision</th><td>24.00</td><td>16.00</td><td>67%</td>' in page
    assert '<tfoot><tr><th scope="row">total</th><td>34.00</td>' in page
    assert page.count("<tfoot>") == 1
    exactly = render_page(made(rows=[row(f"n{i}", "", Amounts(HOUR)) for i in range(MOST_ROWS)], facts=SpanFacts()))
    assert "more, which the total has too" not in exactly
    over = render_page(made(rows=[row(f"n{i}", "", Amounts(HOUR)) for i in range(MOST_ROWS + 1)], facts=SpanFacts()))
    assert '<tr><td colspan="6">and 1 more, which the total has too' in over


def test_a_label_of_pods_is_a_heading_without_its_prefix() -> None:
    page = render_page(made(GroupBy("label", "team")))
    assert '<th scope="col">team</th>' in page
    assert "GPU-hours by label:team" in page
