"""`report --per-token`: what model servers took for 1,000 tokens, and what cannot be divided."""

import json
from decimal import Decimal

import pytest

from exporter.report.costs import Prices
from exporter.report.forms import render_csv, render_json, render_table
from exporter.report.groups import read_by
from exporter.report.html_page import render_page
from exporter.report.report import Line, Report, make_report
from exporter.report.rows import Amounts, SpanFacts
from tests.report.made import HOUR, KWH, Given, collected, row

PRICES = Prices(of_any=Decimal(2), of_kwh=Decimal("0.5"))
Tokens = dict[tuple[str, str, str], dict[str, float]]


def held(pod: str, uuid: str, hours: float = 1.0, workload: str = "llm", **more: str) -> Given:
    """A row that draws a kilowatt while it is held."""
    amounts = Amounts(hours * HOUR, hours * HOUR, 0.0, hours * KWH, hours * HOUR)
    return row("ml", pod, amounts, uuid=uuid, workload_name=workload, workload_kind="StatefulSet", **more)


def report(rows: list[Given], tokens: Tokens, by: str = "workload") -> Report:
    models = {"GPU-a": "H100", "GPU-b": "H100", "GPU-c": "L4"}
    facts = SpanFacts(models=models, tokens=tokens, capacity={("n", "H100"): 24 * HOUR}, seen_ms={"n": 86_400_000})
    return make_report(collected(rows, facts), read_by(by), PRICES)


def joules(line: Line) -> float | None:
    return line.per_1000_tokens(line.amounts.joules)


def says(made: Report) -> str:
    return "\n".join(note.message for note in made.notes)


def test_pods_and_gpus_of_a_server_are_summed() -> None:
    rows = [held("llm-0", "GPU-a"), held("llm-0", "GPU-b"), held("llm-1", "GPU-c", 2.0)]
    made = report(rows, {("", "ml", "llm-0"): {"llama": 3e6}, ("", "ml", "llm-1"): {"llama": 1e6}})
    (line,) = made.groups
    assert line.amounts.tokens == 4e6
    assert joules(line) == pytest.approx(4 * KWH / 4e6 * 1000)
    assert line.per_1000_tokens(line.costs.held) == pytest.approx((4 * 2 + 4 * 0.5) / 4e6 * 1000)
    assert not made.notes


def test_tokens_add_up_by_whatever_rows_are_grouped() -> None:
    rows = [held("llm-0", "GPU-a"), held("llm-0", "GPU-c", 3.0)]
    for by in ("workload", "pod", "namespace", "node", "model"):
        made = report(rows, {("", "ml", "llm-0"): {"": 8e6}}, by)
        assert made.total.amounts.tokens == pytest.approx(8e6)
        assert joules(made.total) == pytest.approx(4 * KWH / 8e6 * 1000)


def test_who_counts_no_tokens_is_left_out_but_for_workers_of_a_server() -> None:
    rows = [held("llm-0", "GPU-a"), held("llm-1", "GPU-b"), held("train-0", "GPU-c", 5.0, "train")]
    made = report(rows, {("", "ml", "llm-0"): {"llama": 1e6}})
    (line,) = made.groups
    assert joules(line) == pytest.approx(2 * KWH / 1e6 * 1000)


def test_what_cannot_be_divided_or_joined_is_named() -> None:
    tokens: Tokens = {("", "ml", "llm-0"): {"llama": 1e6, "qwen": 1e6}, ("c", "ml", "elsewhere-0"): {"llama": 1.0}}
    made = report([held("llm-0", "GPU-a")], tokens)
    assert joules(made.total) == pytest.approx(KWH / 2e6 * 1000)
    assert "cannot be divided among its models, so the tokens of all are added up: ml/llm-0" in says(made)


def test_each_form_has_the_columns_and_none_without_the_flag() -> None:
    rows = [held("llm-0", "GPU-a"), held("llm-1", "GPU-b")]
    made = report(rows, {("", "ml", "llm-0"): {"llama": 2e6}}, "pod")
    table = render_table(made, None)
    ends = [line.split()[-3:] for line in table.splitlines() if line.startswith("ml/llm-")][:2]
    assert ends == [["2,000,000", "1,800.0", "0.00125"], ["0.00", "-", "-"]]
    assert "tokens  J/1k tokens  cost/1k tokens" in table
    assert "GPU-hours that there were" not in table
    (group, silent) = json.loads(render_json(made))["groups"]
    of_tokens = ("tokens", "joules_per_1000_tokens", "cost_per_1000_tokens")
    assert [group[name] for name in of_tokens] == [2e6, 1800.0, 0.00125]
    assert [silent[name] for name in of_tokens] == [0.0, None, None]
    assert render_csv(made).splitlines()[0].endswith(",".join(of_tokens))
    assert "J/1k tokens" in render_page(made)
    facts = SpanFacts(models={"GPU-a": "H100"})
    plain = make_report(collected(rows, facts), read_by("pod"), PRICES)
    assert "token" not in render_table(plain, None) + render_json(plain) + render_csv(plain)
