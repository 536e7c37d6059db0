"""A month of 50 teams in a real Prometheus: the bill is price times hours held, idle and free, to the cent."""

import csv
import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

import pytest

from exporter.report.costs import Prices
from exporter.report.focus import render_focus
from exporter.report.forms import render_csv, render_json, render_table
from exporter.report.groups import read_by
from exporter.report.history.collect import collect
from exporter.report.html_page import render_page
from exporter.report.report import Report, ReportInput, make_report
from tests.end_to_end.billed_month import (
    CLUSTERS,
    EDGES,
    GPUS_OF_A_NODE,
    HOUR,
    KWH,
    NOBODYS_WATTS,
    PRICES,
    TEAMS,
    Month,
    make_month,
    write_month,
)
from tests.support.command import run_here
from tests.support.components import real
from tests.support.prometheus import prometheus
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(400)]

FEBRUARY, MARCH = pairwise(EDGES)
PRICED = Prices(of_models={f"*{model}*": price for model, price in PRICES.items()}, of_kwh=KWH)


@dataclass
class Served:
    """A month, the command that compares it with the month before, and what the command read of both from a server."""

    month: Month
    command: CompletedProcess[str]
    february: ReportInput
    march: ReportInput


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("month")
    month = make_month()
    write_month(month, folder / "month.om")
    backfill = [str(real("promtool")), "tsdb", "create-blocks-from", "openmetrics", "-q", "--max-block-duration=2000h"]
    subprocess.run([*backfill, str(folder / "month.om"), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
    (folder / "month.om").unlink()
    with prometheus(folder, (), flags=("--storage.tsdb.retention.time=100y",)) as server:
        wait_until(lambda: _is_up(server.query), PATIENCE_SECONDS * 2)
        yield Served(month, *compared(server.base))


def _is_up(query: Callable[[str], object]) -> bool:
    try:
        return bool(query("vector(1)"))
    except OSError:
        return False


def compared(url: str) -> tuple[CompletedProcess[str], ReportInput, ReportInput]:
    """The command, and what it read of each month."""
    flags = ["--month=2026-03", "--time-zone=America/New_York", "--compare", "--top=10", "--format=json"]
    prices = [f"--price-per-gpu-hour={model}={price}" for model, price in PRICES.items()]
    months: list[ReportInput] = []

    async def noted(*given: Any, **more: Any) -> ReportInput:
        months.append(await collect(*given, **more))
        return months[-1]

    with patch("exporter.report.command.collect", noted):
        ended = run_here("report", f"--prometheus={url}", *flags, *prices, f"--price-per-kwh={KWH}")
    assert ended.returncode == 0, ended.stderr
    february, march = months
    return ended, february, march


def made(served: Served, by: str = "namespace") -> Report:
    return make_report(served.march, read_by(by), PRICED, top=None, before=served.february)


@dataclass(frozen=True)
class Bill:
    """Of a span, exactly."""

    held: Fraction
    idle: Fraction
    free: Fraction
    gpus: Fraction


def bill(month: Month, begin: int, end: int) -> Bill:
    held, idle = month.hours(begin, end), month.hours(begin, end, lambda one: one.idle)
    there = Fraction((end - begin) * GPUS_OF_A_NODE * len(CLUSTERS), HOUR)
    joules = sum(one.watts * one.within(begin, end) for one in month.holdings)
    joules += NOBODYS_WATTS * (end - begin) * len(CLUSTERS) * len(month.models)
    energy = Fraction(joules, 3_600_000) * Fraction(KWH)
    of_hours = {name: Fraction(price) for name, price in PRICES.items()}
    return Bill(
        held=sum((held[name] * price for name, price in of_hours.items()), energy),
        idle=sum((idle[name] * price for name, price in of_hours.items()), Fraction(0)),
        free=sum(((there - held[name]) * price for name, price in of_hours.items()), Fraction(0)),
        gpus=there * sum(of_hours.values(), Fraction(0)) + energy,
    )


def cents(cost: Fraction | Decimal | float) -> Decimal:
    return round(
        Decimal(cost.numerator) / Decimal(cost.denominator) if isinstance(cost, Fraction) else Decimal(cost), 2
    )


# issue 20, Must show 1
@pytest.mark.parametrize("by", ["namespace", "model", "node", "cluster", "workload", "pod"])
def test_rows_are_price_times_hours_of_what_was_held_idle_and_free(served: Served, by: str) -> None:
    report, truth = made(served, by), bill(served.month, *MARCH)
    assert report.span.ms == 743 * HOUR * 1000
    costs = report.total.costs
    assert [cents(cost or 0) for cost in costs] == [cents(truth.held), cents(truth.idle), cents(truth.free)]
    assert cents((costs.held or 0) + (costs.free or 0)) == cents(truth.gpus)
    for place, cost in enumerate(costs):
        assert sum(line.costs[place] or 0 for line in report.groups) == cost
    before = report.total.before
    assert before is not None
    assert cents(before.costs.held or 0) == cents(bill(served.month, *FEBRUARY).held)
    assert report.held_of_capacity is not None
    assert report.held_of_capacity < 1


def table_sums(report: Report) -> list[Decimal]:
    lines = render_table(report, None).splitlines()
    rules = [number for number, line in enumerate(lines) if line.startswith("---")]
    heading = lines[rules[0] - 1]
    columns = [(match.start(), match.end()) for match in re.finditer(r"-+", lines[rules[0]])]
    names = [heading[begin:end].strip() for begin, end in columns]
    parts = []
    for name in ("cost", "idle cost", "free cost", "cost change"):
        begin, end = columns[names.index(name)]
        cells = [Decimal(line[begin:end].replace(",", "")) for line in lines[rules[0] + 1 : rules[1]]]
        total = Decimal(lines[rules[1] + 1][begin:end].replace(",", ""))
        assert sum(cells) == total, name
        parts.append(total)
    return parts


# issue 20, Must show 1
def test_every_form_has_the_same_bill_to_the_cent(served: Served) -> None:
    truth, before = bill(served.month, *MARCH), bill(served.month, *FEBRUARY)
    expected = [cents(truth.held), cents(truth.idle), cents(truth.free)]
    report = made(served, "model")
    assert table_sums(report) == [*expected, cents(truth.held) - cents(before.held)]

    rows = list(csv.DictReader(io.StringIO(render_csv(report))))
    assert [cents(sum(Decimal(row[name]) for row in rows)) for name in ("cost", "idle_cost", "free_cost")] == expected

    content = json.loads(render_json(report))
    for lines in (content["groups"], [content["total"]]):
        sums = [sum(Decimal(str(line[name])) for line in lines) for name in ("cost", "idle_cost", "free_cost")]
        assert [cents(each) for each in sums] == expected

    charges = list(csv.DictReader(io.StringIO(render_focus(report, "EUR"))))
    free = [row for row in charges if row["ChargeDescription"].startswith("Hours that nobody held")]
    billed = sum(Decimal(row["BilledCost"]) for row in charges)
    of_free = sum(Decimal(row["BilledCost"]) for row in free)
    sums = [Decimal(billed - of_free), Decimal(sum(Decimal(row["x_IdleCost"]) for row in charges)), Decimal(of_free)]
    assert [cents(each) for each in sums] == expected

    page = render_page(report)
    foot = re.findall(r"<td>([^<]*)</td>", page[page.index("<tfoot>") : page.index("</tfoot>")])
    cells = [re.findall(r"<td>([^<]*)</td>", row) for row in re.findall(r"<tr><th scope=\"row\">.*?</tr>", page)]
    heads = re.findall(r"<th scope=\"col\" title[^>]*>([^<]*)</th>", page)
    for name, cost in zip(("cost", "idle cost", "free cost"), expected, strict=True):
        place = heads.index(name)
        of_rows = cells[: len(report.groups)]
        assert sum(Decimal(row[place].replace(",", "")) for row in of_rows) == cost
        assert foot[place] == f"{cost:,}"


# issue 20, Must show 1
def test_nodes_of_one_name_in_two_clusters_are_told_apart(served: Served) -> None:
    report = made(served, "node")
    assert {line.name for line in report.groups} == {f"{cluster}/gpu-{n}" for cluster in CLUSTERS for n in range(4)}
    for line in report.groups:
        assert line.hours.held + line.hours.free == pytest.approx(743 * GPUS_OF_A_NODE)
        assert line.hours.held < 743 * GPUS_OF_A_NODE
    assert not any("more was held" in note.message for note in report.notes)
    assert len(made(served).groups) == len(TEAMS) + 1


# issue 20, Must show 1
def test_the_command_compares_a_month_and_folds_rows_beyond_the_top(served: Served) -> None:
    content = json.loads(served.command.stdout)
    assert (content["from"], content["to"]) == ("2026-03-01T05:00:00Z", "2026-04-01T04:00:00Z")
    assert (content["compared_from"], content["compared_to"]) == ("2026-02-01T05:00:00Z", "2026-03-01T05:00:00Z")
    names = [group["name"] for group in content["groups"]]
    assert names[10:] == ["(40 others)", None]
    truth, before = bill(served.month, *MARCH), bill(served.month, *FEBRUARY)
    bills = {"cost": truth.held, "idle_cost": truth.idle, "free_cost": truth.free, "cost_before": before.held}
    for name, of_month in bills.items():
        assert cents(sum(Decimal(str(group[name])) for group in content["groups"])) == cents(of_month), name
