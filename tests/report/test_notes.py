"""From when on a note says what a report could not know, and what it names."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from exporter.report.costs import Prices
from exporter.report.groups import read_by
from exporter.report.report import make_report
from exporter.report.rows import Amounts, SpanFacts
from exporter.report.span import Span
from tests.report.made import A100, H100, HOUR, KWH, SPAN, Given, collected, row

HOUR_MS = 3_600_000
HELD = row("a", "web-7d9c5b8f4d-x2x9k", Amounts(HOUR, joules=KWH), workload_name="web", queue="q", label_team="t")


def notes(
    rows: Sequence[Given] = (HELD,),
    *,
    by: str = "namespace",
    ms: int = SPAN.ms,
    prices: Prices | None = None,
    **facts: object,
) -> list[str]:
    of_span = SpanFacts(**{"models": {"GPU-1": H100, "GPU-2": A100}, **facts})  # type: ignore[arg-type]  # fields by name
    span = Span(SPAN.from_ms, SPAN.from_ms + ms)
    report = make_report(replace(collected(rows, of_span), span=span), read_by(by), prices or Prices())
    return [str(note) for note in report.notes]


@pytest.mark.parametrize(
    ("ms", "unknown_ms", "is_said"),
    [
        (SPAN.ms, 120_000, False),
        (SPAN.ms, 120_001, True),
        (HOUR_MS // 6, 30_000, False),  # a twentieth of ten minutes
        (HOUR_MS // 6, 30_001, True),
    ],
)
def test_a_beginning_of_two_minutes_or_a_twentieth_may_be_unknown(ms: int, unknown_ms: int, is_said: bool) -> None:
    made = notes(ms=ms, began_ms=SPAN.from_ms + unknown_ms)
    assert [note.startswith("nothing is known before 2026-10-26T07:3") for note in made] == [True] * is_said
    assert all("the server keeps" not in note for note in made)


@pytest.mark.parametrize(
    ("ms", "away_ms", "is_said"),
    [
        (HOUR_MS, 600_000, False),
        (HOUR_MS, 600_001, True),
        (100 * HOUR_MS, 2 * HOUR_MS, False),
        (100 * HOUR_MS, 2 * HOUR_MS + 1, True),
    ],
)
def test_a_node_may_be_away_for_ten_minutes_or_a_fiftieth(ms: int, away_ms: int, is_said: bool) -> None:
    made = notes(ms=ms, seen_ms={"n": ms - away_ms})
    assert ["1 node had no samples" in note for note in made] == [True] * is_said


def test_a_node_is_not_away_before_the_first_sample() -> None:
    began: Mapping[str, Any] = {"began_ms": SPAN.from_ms + 12 * HOUR_MS}
    (only,) = notes(seen_ms={"n": SPAN.ms / 2}, **began)
    assert only.startswith("nothing is known before")
    assert "n (1h)" in notes(seen_ms={"n": SPAN.ms / 2 - HOUR_MS}, **began)[1]


def test_nodes_that_were_away_longest_are_named_first() -> None:
    seen = {"a": SPAN.ms - 2 * HOUR_MS, "b": SPAN.ms - 4 * HOUR_MS, "c": SPAN.ms - 3 * HOUR_MS}
    (note,) = notes(seen_ms=seen)
    assert "3 nodes had no samples for a part of the span: b (4h), c (3h), a (2h)." in note


def test_nodes_with_more_held_than_there_is_are_named_by_the_cause() -> None:
    rows = [row("a", f"p{node}", Amounts(36 * HOUR, joules=KWH), node=node) for node in ("two", "new", "away", "fine")]
    seen = {"two": SPAN.ms, "away": SPAN.ms / 2, "fine": SPAN.ms}
    capacity = {("two", H100): 24 * HOUR, ("away", H100): 12 * HOUR, ("fine", H100): 48 * HOUR}
    away, unsized, several = notes(rows, seen_ms=seen, capacity=capacity)
    assert "1 node had no samples for a part of the span: away (12h)." in away
    assert unsized.startswith("the number of GPUs on new is not known")
    assert several.startswith("more was held on two than the GPUs there could give")
    assert notes(rows) == []


def test_exporters_that_began_anew_are_named_in_order() -> None:
    (note,) = notes(restarts={"n2": 1, "n1": 3})
    assert note.startswith("2 exporters began to count anew: n1 (3), n2 (1). What")


@pytest.mark.parametrize(("seconds", "is_said"), [(29.9, False), (30.0, True)])
def test_a_gap_of_half_a_minute_is_said(seconds: float, is_said: bool) -> None:
    made = notes(gaps={"somewhere": seconds, "kubelet": 1.0})
    assert [note.startswith("for about 30s, all exporters together, somewhere ->") for note in made] == [True] * is_said


def test_gaps_are_in_the_order_of_their_reasons() -> None:
    made = notes(gaps={"page": 60.0, "exporter": 61.0, "kubelet": 62.0})
    assert [note.partition(",")[0] for note in made] == [f"for about 1m{more}" for more in (" 1s", " 2s", "")]


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("cluster", "no row has a label for its cluster"),
        ("label:team", "no row has the label team"),
        ("queue", "no row names a queue"),
        ("model", "no GPU has a model"),
    ],
)
def test_a_group_that_no_row_has_is_said_and_one_that_some_have_is_not(by: str, says: str) -> None:
    without = row("a", "p", Amounts(HOUR, joules=KWH), uuid="GPU-9")
    (note,) = notes([without], by=by)
    assert note.startswith(says)
    key, amounts, labels = HELD
    assert notes([without, (key._replace(cluster="x"), amounts, labels)], by=by) == []
    assert notes([], by=by) == []


def test_workloads_that_nobody_recorded_are_counted_by_what_names_tell() -> None:
    rows = [
        HELD,
        row("a", "db-0", Amounts(2 * HOUR, joules=KWH)),
        row("a", "notebook", Amounts(3 * HOUR)),
        row("", "", Amounts(9 * HOUR)),
    ]
    (both,) = notes(rows, by="workload")
    assert both.startswith(
        "no workload was recorded for 2.00 GPU-hours: the pods' names tell it (a Rollout's look like a Deployment's);"
        " for 3.00 GPU-hours: names do not tell it either, so each pod is a group of its own ->"
    )
    (by_name,) = notes(rows[:2], by="workload")
    assert "names do not tell" not in by_name
    (by_nothing,) = notes([HELD, rows[2]], by="workload")
    assert "the pods' names tell it" not in by_nothing
    assert notes([HELD], by="workload") == notes(rows, by="namespace") == []


@pytest.mark.parametrize(
    ("of_models", "unpriced"),
    [
        ({H100: Decimal(1)}, f"a model that nobody knows, {A100}"),
        ({A100: Decimal(1)}, f"a model that nobody knows, {H100}"),
        ({"*": Decimal(1)}, None),
        ({}, None),
    ],
)
def test_models_without_a_price_are_named(of_models: Mapping[str, Decimal], unpriced: str | None) -> None:
    rows = [
        row("a", "p", Amounts(HOUR, joules=KWH)),
        row("a", "q", Amounts(HOUR), uuid="GPU-2"),
        row("a", "r", Amounts(HOUR), uuid="GPU-9"),
        row("a", "s", Amounts(joules=KWH), uuid="GPU-8"),
    ]
    made = notes(rows, prices=Prices(of_models=of_models))
    assert [note.partition(":")[0] for note in made] == ([f"there is no price for {unpriced}"] if unpriced else [])


def test_the_price_of_a_free_model_is_missed_too() -> None:
    only = Prices(of_models={H100: Decimal(1)})
    made = notes(capacity={("m", A100): HOUR}, seen_ms={"m": SPAN.ms}, prices=only)
    assert any(note.startswith(f"there is no price for {A100}") for note in made)
    assert notes([row("a", "p", Amounts(joules=KWH), uuid="GPU-2")], prices=only) == []


def test_energy_is_missed_only_where_something_was_held() -> None:
    (note,) = notes([row("a", "p", Amounts(HOUR))])
    assert note.startswith("no energy was counted")
    assert notes([row("a", "p", Amounts(used=HOUR))]) == notes([]) == []


def test_pods_with_several_models_are_named_in_order() -> None:
    tokens = {
        ("x", "ml", "b"): {"m": 1.0, "n": 1.0},
        ("", "ml", "a"): {"m": 1.0, "n": 1.0},
        ("", "ml", "c"): {"m": 1.0},
    }
    (note, *_) = notes([HELD], tokens=tokens)
    assert "the tokens of all are added up: ml/a, ml/b ->" in note
    assert "the tokens of all" not in str(notes([HELD], tokens={("", "ml", "c"): {"m": 1.0}}))


def test_what_the_span_before_lacks_is_said_of_it() -> None:
    lacking = SpanFacts(models={"GPU-1": H100}, seen_ms={"n": SPAN.ms / 2}, odd=3)
    before = collected([HELD], lacking)
    now = collected([HELD], SpanFacts(models={"GPU-1": H100}, seen_ms={"n": float(SPAN.ms)}))
    (note,) = make_report(now, read_by("namespace"), Prices(), before=before).notes
    assert str(note).startswith("in the span before, 1 node had no samples")
    assert " -> where a node is not new" in str(note)
