"""The columns that a report has and the order of its lines, by what it is of: prices, capacity, two spans."""

import csv
import io
import json
from collections.abc import Sequence
from decimal import Decimal

import pytest

from exporter.report.costs import Prices
from exporter.report.forms import (
    columns_of_groups,
    columns_of_wasteful,
    render_csv,
    render_json,
    render_table,
    words_of,
)
from exporter.report.groups import GroupBy, read_by
from exporter.report.report import Report, make_report
from exporter.report.rows import Amounts, SpanFacts
from tests.report.made import A100, H100, HOUR, KWH, ROWS, SPAN, Given, collected, made, row

PRICED, ENERGY = Prices(of_any=Decimal("2.5")), Prices(of_kwh=Decimal(1))


def compared(
    earlier: Sequence[Given], prices: Prices = PRICED, by: str = "namespace", rows: Sequence[Given] = ROWS
) -> Report:
    before = collected(earlier)
    return make_report(collected(rows), read_by(by), prices, before=before)


@pytest.mark.parametrize(
    ("report", "headings"),
    [
        (made(), "GPU-hours|used|used %|idle|kWh"),
        (made(prices=PRICED), "GPU-hours|used|used %|idle|kWh|cost|idle cost"),
        (made(prices=ENERGY), "GPU-hours|used|used %|idle|kWh|cost"),
        (made(GroupBy("model")), "GPU-hours|used|used %|idle|free|kWh"),
        (made(GroupBy("model"), PRICED), "GPU-hours|used|used %|idle|free|kWh|cost|idle cost|free cost"),
        (made(GroupBy("model"), facts=SpanFacts()), "GPU-hours|used|used %|idle|kWh"),
        (compared(ROWS), "GPU-hours|change|used %|idle|cost|cost change|idle cost"),
        (compared(ROWS, ENERGY), "GPU-hours|change|used %|idle|cost|cost change"),
        (compared(ROWS, Prices(), "node"), "GPU-hours|change|used %|idle|free"),
    ],
)
def test_a_report_has_the_columns_of_what_is_known(report: Report, headings: str) -> None:
    assert "|".join(column.heading for column in columns_of_groups(report)) == headings


@pytest.mark.parametrize(
    ("prices", "headings"),
    [
        (Prices(), "not used|GPU-hours|used|used %"),
        (ENERGY, "not used|GPU-hours|used|used %|cost"),
        (PRICED, "not used|GPU-hours|used|used %|cost|idle cost"),
    ],
)
def test_workloads_have_the_columns_of_what_they_did_not_use(prices: Prices, headings: str) -> None:
    assert "|".join(column.heading for column in columns_of_wasteful(made(prices=prices))) == headings


def held_with(observed: float, idle_unknown: float) -> Report:
    return made(rows=[row("ml", "p", Amounts(100.0, 50.0, 0.0, KWH, observed=observed, idle_unknown=idle_unknown))])


def test_what_is_unknown_of_more_than_a_hundredth_has_a_column() -> None:
    assert (held_with(99.0, 1.0).has_unknown_use, held_with(99.0, 1.0).has_unknown_idle) == (False, False)
    assert (held_with(98.9, 1.0).has_unknown_use, held_with(98.9, 1.0).has_unknown_idle) == (True, False)
    assert (held_with(99.0, 1.1).has_unknown_use, held_with(99.0, 1.1).has_unknown_idle) == (False, True)
    headings = [column.heading for column in columns_of_groups(held_with(90.0, 10.0))]
    assert headings == ["GPU-hours", "used", "used %", "use unknown", "idle", "idle unknown", "kWh"]
    assert "use unknown" in [column.heading for column in columns_of_wasteful(held_with(90.0, 10.0))]


def test_words_are_explained_only_where_they_stand() -> None:
    begins = [sentence.partition(":")[0] for sentence in words_of(held_with(90.0, 10.0))]
    assert begins == ["idle", "not used", "idle unknown", "use unknown"]
    assert words_of(made(rows=[row("a", "p", Amounts(HOUR, HOUR))])) == []


TABLE = """\
GPUs from 2026-10-26T07:33:20Z to 2026-10-27T07:33:20Z (1d), by namespace
before: from 2026-10-26T07:33:20Z to 2026-10-27T07:33:20Z (1d)

namespace  GPU-hours        change  used %   idle   cost  cost change  idle cost
---------  ---------  ------------  ------  -----  -----  -----------  ---------
vision         24.00  +24.00 (new)     67%   2.00  60.00       +60.00       5.00
books          10.00         +6.00      5%   9.00  25.00       +15.00      22.50
gone            0.00  -3.00 (gone)       -   0.00   0.00        -7.50       0.00
(nobody)        0.00          0.00       -   0.00   0.00        +0.00       0.00
---------  ---------  ------------  ------  -----  -----  -----------  ---------
total          34.00        +27.00     49%  11.00  85.00       +67.50      27.50
"""
EARLIER = (row("books", "p", Amounts(4 * HOUR, joules=1.0)), row("gone", "p", Amounts(3 * HOUR)))


def test_a_compared_table_says_what_is_new_and_what_is_gone() -> None:
    assert render_table(compared(EARLIER), None).startswith(TABLE)


def test_the_change_of_a_cost_that_is_unknown_is_unknown() -> None:
    prices = Prices(of_models={H100: Decimal(2)})
    of_a100 = row("books", "p", Amounts(HOUR), uuid="GPU-2")
    of_h100 = row("books", "p", Amounts(HOUR), uuid="GPU-1")
    for now, before in ((of_a100, of_h100), (of_h100, of_a100)):
        table = render_table(compared([before], prices, rows=[now]), None).splitlines()
        (line,) = (line for line in table if line.startswith("books "))
        assert line.split()[6] == "-", line


def test_compared_records_have_the_hours_and_the_cost_of_before() -> None:
    content = json.loads(render_json(compared(EARLIER)))
    assert (content["compared_from"], content["compared_to"]) == ("2026-10-26T07:33:20Z", "2026-10-27T07:33:20Z")
    fields = ("gpu_hours_held_before", "cost_before")
    assert [[group[name] for name in fields] for group in content["groups"]] == [[0, 0], [4, 10], [3, 7.5], [0, 0]]
    assert [content["total"][name] for name in fields] == [7, 17.5]
    plain = json.loads(render_json(made()))
    assert not any("before" in name or "compared" in name for name in (*plain, *plain["total"]))


def test_without_a_capacity_nobody_knows_what_was_free() -> None:
    report = made(prices=PRICED, facts=SpanFacts())
    total = json.loads(render_json(report))["total"]
    assert (total["gpu_hours_free"], total["free_cost"]) == (None, None)
    assert json.loads(render_json(report))["capacity_gpu_hours"] is None
    assert "GPU-hours that there were" not in render_table(report, None)
    cells = next(csv.DictReader(io.StringIO(render_csv(report), newline="")))
    assert (cells["gpu_hours_free"], cells["free_cost"]) == ("", "")


def test_without_a_price_the_free_hours_have_no_cost() -> None:
    assert "was held; 38.00 were free.\n" in render_table(made(), None)


def test_each_piece_of_the_span_has_the_amounts_of_all_rows() -> None:
    content = json.loads(render_json(made()))["over_time"]
    pieces = SPAN.pieces()
    assert len(content) == len(pieces)
    assert content[0] == {
        "from": "2026-10-26T07:33:20Z",
        "to": "2026-10-26T08:33:20Z",
        "gpu_hours_held": round(34 / len(pieces), 6),
        "gpu_hours_used": round(16.5 / len(pieces), 6),
        "gpu_hours_idle": round(11 / len(pieces), 6),
        "energy_kwh": round(7.75 / len(pieces), 6),
    }


def test_notes_stand_at_the_end_with_what_to_do() -> None:
    report = made(facts=SpanFacts(odd=1))
    assert render_table(report, None).endswith(
        "\nWhat could not be known:\n\n- 1 value left out: no number of 0 or more ->"
        " does another program write families of these names?\n"
    )
    assert json.loads(render_json(report))["notes"] == [
        {
            "says": "1 value left out: no number of 0 or more",
            "remedy": "does another program write families of these names?",
        }
    ]
    assert "What could not be known" not in render_table(made(), None)


def test_a_csv_of_nothing_has_its_first_headings() -> None:
    assert render_csv(made(rows=[], facts=SpanFacts())) == "from,to,namespace\r\n"


def test_numbers_for_programs_have_six_decimals_and_no_zeros_at_the_end() -> None:
    report = made(rows=[row("a", "p", Amounts(HOUR / 3, HOUR / 4))])
    cells = next(csv.DictReader(io.StringIO(render_csv(report), newline="")))
    assert (cells["gpu_hours_held"], cells["gpu_hours_used"], cells["gpu_hours_idle"]) == ("0.333333", "0.25", "0")


def test_a_name_has_at_least_twelve_columns_however_narrow_the_terminal_is() -> None:
    rows = [row("a-namespace-of-some-length", "p", Amounts(HOUR))]
    for columns in (10, 12):
        assert "\na-name…ength  " in render_table(made(rows=rows), columns)
    wide = render_table(made(rows=rows), 60).splitlines()
    assert [len(line) for line in wide[2:5]] == [60, 60, 60]
    assert "\na-namespace-of-some-length  " in render_table(made(rows=rows), None)


def test_groups_that_held_the_same_stand_by_energy_then_by_name() -> None:
    rows = [
        row("c", "p", Amounts(HOUR)),
        row("b", "p", Amounts(HOUR)),
        row("d", "p", Amounts(HOUR, joules=KWH)),
        row("", "", Amounts(joules=9 * KWH)),
        row("e", "p", Amounts(2 * HOUR)),
    ]
    assert [line.name for line in made(rows=rows).groups] == ["e", "d", "b", "c", None]
    gone = [row("x", "p", Amounts(HOUR)), row("y", "p", Amounts(2 * HOUR))]
    assert [line.name for line in compared(gone, rows=rows[:1]).groups if line.name] == ["c", "y", "x"]


@pytest.mark.parametrize(
    ("top", "names"),
    [(3, ["vision", "books", "odd"]), (2, ["vision", "books", "(1 other)"]), (1, ["vision", "(2 others)"])],
)
def test_others_are_one_line_if_there_are_more_than_asked_for(top: int, names: Sequence[str]) -> None:
    rows = [*ROWS, row("odd", "p", Amounts(HOUR, joules=KWH))]
    report = make_report(collected(rows), GroupBy("namespace"), Prices(), top=top)
    assert [line.name for line in report.groups] == [*names, None]
    assert [line.groups for line in report.groups] == [1] * (len(names) - 1) + [4 - len(names), 1]


def test_nodes_and_their_models_share_what_was_free() -> None:
    capacity = {("n", H100): 10 * HOUR, ("n", A100): 10 * HOUR, ("m", A100): 4 * HOUR}
    seen = {"n": float(SPAN.ms), "m": float(SPAN.ms)}
    # of a GPU whose model nobody knows: its hours are of either model of its node
    rows = [row("a", "p", Amounts(6 * HOUR, joules=KWH), uuid="GPU-9"), row("a", "q", Amounts(2 * HOUR), uuid="GPU-1")]
    report = made(GroupBy("model"), rows=rows, facts=SpanFacts(models={"GPU-1": H100}, capacity=capacity, seen_ms=seen))
    free = {line.name: line.hours.free for line in report.groups}
    assert free == pytest.approx({H100: 8 * 12 / 18, A100: 10 * 12 / 18 + 4, None: 0})
    assert report.total.hours.free == pytest.approx(16)
    assert report.capacity_hours == 24
    assert report.gpus == pytest.approx(1)
    over = [row("a", "p", Amounts(30 * HOUR, joules=KWH), uuid="GPU-9")]
    report = made(GroupBy("model"), rows=over, facts=SpanFacts(capacity=capacity, seen_ms=seen))
    assert {line.name: line.hours.free for line in report.groups} == {None: 0, H100: 0, A100: 4}


def test_a_gpu_of_an_unknown_model_is_of_the_only_one_of_its_node() -> None:
    facts = SpanFacts(capacity={("n", H100): 24 * HOUR}, seen_ms={"n": float(SPAN.ms)})
    report = made(GroupBy("model"), rows=[row("a", "p", Amounts(HOUR), uuid="GPU-9")], facts=facts)
    assert {line.name: (line.hours.held, line.hours.free) for line in report.groups} == {H100: (1, 23)}
