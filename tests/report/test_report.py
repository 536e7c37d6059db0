"""Grouping, prices, and what could not be known."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import ConfigError
from exporter.report.costs import Prices, apportioned, read_prices
from exporter.report.forms import render_table
from exporter.report.groups import GroupBy, read_by, workload_of_name
from exporter.report.html_page import render_page
from exporter.report.notes import nothing_there
from exporter.report.report import make_report
from exporter.report.rows import Amounts, SpanFacts
from exporter.report.span import Span
from tests.report.made import A100, H100, HOUR, KWH, ROWS, SPAN, collected, made, row


@pytest.mark.parametrize(
    ("by", "held"),
    [
        ("namespace", {"vision": 24, "books": 10, None: 0}),
        ("workload", {"vision/Job/train": 24, "books/StatefulSet/jupyter": 10, None: 0}),
        ("pod", {"vision/train-1": 20, "books/jupyter-0": 10, "vision/train-2": 4, None: 0}),
        ("model", {H100: 20, A100: 14, None: 0}),
        ("node", {"n": 34}),
        ("label:team", {"words": 10, "eyes": 4, None: 20}),
        ("queue", {"research": 20, "vision/user-queue": 4, None: 10}),
    ],
)
def test_groups_by(by: str, held: Mapping[str | None, float]) -> None:
    """Most first, and at the end what belongs to none."""
    report = made(read_by(by))
    assert {line.name: line.hours.held for line in report.groups} == held
    assert [line.name for line in report.groups] == list(held)
    assert report.total.hours.held == 34
    assert report.total.hours.joules == pytest.approx(7.75)


@pytest.mark.parametrize("text", ["", "team", "label:", "namespaces", "label"])
def test_what_cannot_be_grouped_by_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"^{text}$"):
        read_by(text)


def test_a_label_is_found_under_the_name_that_the_exporter_gives_it() -> None:
    by = read_by("label:app.kubernetes.io/name")
    assert by.label_names[0] == "label_app_kubernetes_io_name"
    assert set(by.label_names) <= by.wanted


@pytest.mark.parametrize(
    ("by", "more"),
    [
        ("namespace", set()),
        ("queue", {"queue"}),
        ("label:team", {"label_team", "team"}),
        ("label:queue", {"label_queue", "queue"}),
    ],
)
def test_a_way_to_group_wants_the_labels_that_it_needs(by: str, more: set[str]) -> None:
    assert read_by(by).wanted == {"workload_name", "workload_kind"} | more
    assert str(read_by(by)) == by


def test_the_exporters_name_of_a_label_goes_before_its_own() -> None:
    rows = [
        row("a", "p", Amounts(HOUR), label_team="x", team="y"),
        row("a", "q", Amounts(2 * HOUR), label_team="", team="z"),
    ]
    assert [line.name for line in made(read_by("label:team"), rows=rows).groups if line.name] == ["z", "x"]


def test_those_that_hold_most_and_use_least_stand_by_what_they_did_not_use() -> None:
    report = made()
    assert [(line.name, line.unused_hours) for line in report.wasteful] == [
        ("books/StatefulSet/jupyter", 9.5),
        ("vision/Job/train", 8),
    ]
    rows = [row("a", f"p{i:02}", Amounts((i + 1) * HOUR)) for i in range(15)]
    assert [line.name for line in made(rows=rows).wasteful] == [f"a/p{i:02}" for i in range(14, 4, -1)]
    # who has a share and keeps the GPU busy alone wastes nothing
    assert made(rows=[row("a", "p", Amounts(HOUR, 4 * HOUR))]).wasteful == []


@pytest.mark.parametrize(
    ("prices", "of_kwh", "costs"),
    [
        (["2.5"], None, {"vision": 60, "books": 25, None: 0}),
        (["2.5"], "0.4", {"vision": 62.8, "books": 25.2, None: 0.1}),
        ([f"{H100}=4", f"{A100}=2"], None, {"vision": 88, "books": 20, None: 0}),
        (["*a100*=2", "3"], None, {"vision": 68, "books": 20, None: 0}),
        (["NVIDIA*=1", "nvidia h100*=4", f"{A100.upper()}=2"], None, {"vision": 88, "books": 20, None: 0}),
        ([f"{A100}=2"], None, {"vision": None, "books": 20, None: 0}),
        ([], "0.4", {"vision": 2.8, "books": 0.2, None: 0.1}),
        ([], None, {"vision": None, "books": None, None: None}),
    ],
)
def test_costs(prices: list[str], of_kwh: str | None, costs: Mapping[str | None, float | None]) -> None:
    report = made(prices=read_prices(prices, of_kwh))
    assert {line.name: line.costs.held for line in report.groups} == pytest.approx(costs)
    unpriced = any("there is no price" in note.message for note in report.notes)
    assert unpriced is (len(prices) == 1 and A100 in prices[0])
    if None not in costs.values():
        assert report.total.costs.held == pytest.approx(sum(cost or 0 for cost in costs.values()))


@pytest.mark.parametrize(
    ("prices", "of_kwh", "says"),
    [
        (["cheap"], None, "--price-per-gpu-hour: 'cheap'"),
        (["A100=nan"], None, "'A100=nan' is not allowed"),
        # issue 15, line 10
        (["1e308"], None, "--price-per-gpu-hour: '1e308'"),
        (["-1"], None, "'-1' is not allowed"),
        (["1", "2"], None, "second price"),
        (["A=1", "A=2"], None, "second price"),
        (["=2"], None, "has no model"),
        ([], "inf", "--price-per-kwh: 'inf'"),
    ],
)
def test_what_is_no_price_is_refused(prices: list[str], of_kwh: str | None, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_prices(prices, of_kwh)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", ""]),
            st.sampled_from(["x", "y"]),
            st.sampled_from(["GPU-1", "GPU-2", "GPU-3"]),
            st.builds(Amounts, *[st.floats(0, 1e7)] * 7),
        ),
        unique_by=lambda given: given[:3],
    ),
    st.sampled_from(["namespace", "workload", "pod", "node", "model", "label:team", "queue"]),
)
def test_groups_add_up_to_the_total(given_rows: list[tuple[str, str, str, Amounts]], by: str) -> None:
    rows = [row(namespace, pod, amounts, uuid=uuid) for namespace, pod, uuid, amounts in given_rows]
    report = made(read_by(by), Prices(of_any=Decimal(2), of_kwh=Decimal("0.5")), rows)
    for field in range(4):
        total = report.total.amounts[field]
        assert sum(line.amounts[field] for line in report.groups) == pytest.approx(total)
        assert sum(given[3][field] for given in given_rows) == pytest.approx(total)
    if rows:
        assert sum(line.costs.held or 0 for line in report.groups) == report.total.costs.held
        for places in (2, 6):
            (of_total,) = apportioned([report.total.costs.held], places)
            parts = apportioned((line.costs.held for line in report.groups), places)
            assert sum(part or Decimal(0) for part in parts) == of_total


def facts(**known: object) -> SpanFacts:
    return SpanFacts(**{"models": {"GPU-1": H100, "GPU-2": A100}, "seen_ms": {"n": SPAN.ms}, **known})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("known", "says"),
    [
        ({}, None),
        (
            {"began_ms": SPAN.from_ms + 7_200_000, "retention": "15d"},
            "the first 2h of the span count nothing; the server keeps 15d",
        ),
        ({"began_ms": SPAN.from_ms + 15_000}, None),
        ({"seen_ms": {"n": SPAN.ms - 7_200_000}}, "1 node had no samples for a part of the span: n (2h)"),
        ({"seen_ms": {"n": SPAN.ms - 300_000}}, None),
        ({"seen_ms": {f"n{i}": 0.0 for i in range(8)}}, ": n0 (1d), n1 (1d), n2 (1d), n3 (1d), n4 (1d) and 3 more."),
        ({"nodes_elsewhere": {"n", "dark"}}, "1 node with GPUs, by kube-state-metrics, but without accounts: dark"),
        ({"restarts": {"n": 2}}, "1 exporter began to count anew: n (2)"),
        ({"gaps": {"kubelet": 3700.0, "page": 2.0}}, "about 1h 1m, all exporters together, the kubelet did not say"),
        ({"failing_seconds": 5400.0}, "containers held devices that were failing or gone for about 1.50 GPU-hours"),
        ({"odd": 3}, "3 values left out"),
        ({"has_renamed": True}, "set honor_labels: true"),
        ({"warnings": ("store 3 is away",)}, "the server warns: store 3 is away"),
        ({"unanswered": {"TooMuch": "busy"}}, "unanswered: busy"),
    ],
)  # fmt: skip
def test_what_could_not_be_known_is_said(known: Mapping[str, object], says: str | None) -> None:
    notes = [str(note) for note in made(facts=facts(**known)).notes]
    if says is None:
        assert notes == []
    else:
        assert len(notes) == 1, notes
        assert says in notes[0]
        assert " -> " in notes[0]


@pytest.mark.parametrize(
    ("by", "rows", "says"),
    [
        (
            "workload",
            [row("a", "p", Amounts(HOUR, joules=KWH))],
            "no workload was recorded for 1.00 GPU-hours: names do not tell it",
        ),
        ("label:cost-centre", None, "--labels.pod-labels cost-centre"),
        ("queue", None, "no row names a queue"),
        ("model", None, "no GPU has a model"),
        ("namespace", [row("a", "p", Amounts(HOUR))], "no energy was counted"),
    ],
)
def test_what_the_exporter_was_not_asked_for_is_said(by: str, rows: list[tuple[object, ...]] | None, says: str) -> None:
    known: dict[str, object] = {"models": {}} if by == "model" else {}
    report = make_report(collected(rows or collected_rows(), facts(**known)), read_by(by), Prices())  # type: ignore[arg-type]
    assert [says in str(note) for note in report.notes] == [True]


def collected_rows() -> list[tuple[object, ...]]:
    return [row("a", "p", Amounts(HOUR, joules=KWH))]


# issue 15, line 10
@pytest.mark.parametrize(
    ("node", "seen_ms", "says"),
    [
        ("n", SPAN.ms, "more was held on n than the GPUs there could give: another node has the same name, or an"),
        ("n", SPAN.ms / 2, "1 node had no samples for a part of the span: n (12h)"),
        ("m", SPAN.ms, "the number of GPUs on m is not known"),
    ],
    ids=["two nodes of one name", "not scraped for half of the span", "a node without capacity"],
)
def test_more_than_all_is_no_percentage_and_its_cause_is_named(node: str, seen_ms: float, says: str) -> None:
    report = made(
        rows=[row("a", "p", Amounts(36 * HOUR, joules=KWH), node=node)],
        facts=facts(capacity={("n", H100): 24 * HOUR}, seen_ms={"n": seen_ms}),
    )
    (note,) = report.notes
    assert says in note.message
    assert report.held_of_capacity is None
    assert "150%" not in render_table(report, 100) + render_page(report)


# 2 % and, for each GPU, 30 s: of 24 hours 24 h 29 min 18 s
@pytest.mark.parametrize(("hours", "part"), [(24.4882, 1.0), (24.4884, None)])
def test_what_late_scrapes_hold_more_than_all_is_all(hours: float, part: float | None) -> None:
    known = facts(capacity={("n", H100): 24 * HOUR}, seen_ms={"n": SPAN.ms})
    assert made(rows=[row("a", "p", Amounts(hours * HOUR))], facts=known).held_of_capacity == part


# issue 22, lines 18 and 28
@pytest.mark.parametrize("minutes", [2, 10, 60, 480])
@pytest.mark.parametrize("unseen_seconds", [0, 120, 540])
@pytest.mark.parametrize("late_seconds", [0, 25])
def test_a_node_of_a_name_of_its_own_is_never_taken_for_two(
    minutes: int, unseen_seconds: int, late_seconds: int
) -> None:
    """All of its GPUs were held all the time; nobody scraped it for some of it, and scrapes were late."""
    seconds = minutes * 60
    seen = max(30, seconds - unseen_seconds)
    given_facts = facts(capacity={("n", H100): 4.0 * seen}, seen_ms={"n": seen * 1000.0})
    given_rows = [row("a", "p", Amounts(4.0 * (seconds + late_seconds), joules=KWH))]
    span = Span(SPAN.from_ms, SPAN.from_ms + seconds * 1000)
    of_span = replace(collected(given_rows, given_facts), span=span)
    notes = make_report(of_span, GroupBy("namespace"), Prices()).notes
    assert not any("the same name" in note.message for note in notes)
    twice = replace(of_span, grown={key: amounts.plus(amounts) for key, amounts in of_span.grown.items()})
    is_told = any("the same name" in note.message for note in make_report(twice, GroupBy("namespace"), Prices()).notes)
    assert is_told or seconds - seen > 10 * 60


def test_why_there_are_no_accounts_at_all() -> None:
    assert "update it" in nothing_there(SpanFacts(has_exporter=True), matched=False).remedy
    assert "scrape-config.yaml" in nothing_there(SpanFacts(), matched=False).remedy
    assert "--match" in nothing_there(SpanFacts(), matched=True).message
    assert "--match" not in nothing_there(SpanFacts(), matched=False).message


def test_a_model_that_nobody_held_is_its_nodes_if_it_has_one_alone() -> None:
    known = SpanFacts(capacity={("n", H100): HOUR}, seen_ms={"n": SPAN.ms})
    assert [line.name for line in made(GroupBy("model"), facts=known).groups] == [H100]


# issue 15, line 4
def test_used_is_divided_by_the_time_in_which_somebody_saw_it() -> None:
    rows = [
        row("ml", "a", Amounts(held=4 * HOUR, used=1.5 * HOUR, observed=3 * HOUR)),  # the page was away for an hour
        row("old", "b", Amounts(held=4 * HOUR, used=1 * HOUR)),  # an exporter that does not count it
        row("dark", "c", Amounts(held=2 * HOUR)),  # the page was never there
    ]
    report = made(rows=rows)
    assert {line.name: (line.used_ratio, line.unused_hours) for line in report.groups if line.name} == {
        "ml": (0.5, 1.5),
        "old": (0.25, 3.0),
        "dark": (None, 0.0),
    }
    assert report.total.used_ratio == 2.5 / 7


# issue 20, line 1
def test_a_top_of_groups_and_the_others_add_up_to_the_same_total() -> None:
    prices = Prices(of_any=Decimal("1.99"))
    rows = [row(f"n{number}", "p", Amounts(HOUR * (1 + number / 7), idle=HOUR / 3)) for number in range(9)]
    of_all, of_top = (
        make_report(collected([*rows, ROWS[-1]]), GroupBy("namespace"), prices, top=top) for top in (None, 3)
    )
    assert [line.name for line in of_top.groups] == ["n8", "n7", "n6", "(6 others)", None]
    assert of_top.total == of_all.total
    assert sum(line.costs.held or 0 for line in of_top.groups) == of_all.total.costs.held


# issue 20, line 1
def test_free_hours_are_priced_by_model_and_belong_to_nobody_or_to_gpus() -> None:
    prices = Prices(of_models={H100: Decimal(4), A100: Decimal(2)})
    by_namespace, by_model = (made(read_by(by), prices) for by in ("namespace", "model"))
    assert {line.name: line.hours.free for line in by_namespace.groups} == {"vision": 0, "books": 0, None: 38}
    assert {line.name: (line.hours.free, float(line.costs.free or 0)) for line in by_model.groups if line.name} == {
        H100: (28, 112),
        A100: (10, 20),
    }
    for report in (by_namespace, by_model):
        assert report.total.costs.held is not None
        assert report.total.costs.free is not None
        assert report.total.costs.held + report.total.costs.free == 48 * 4 + 24 * 2


# issue 20, line 1
def test_a_span_is_compared_with_the_one_before_row_by_row() -> None:
    earlier = [row("books", "p", Amounts(4 * HOUR)), row("gone", "p", Amounts(3 * HOUR))]
    report = make_report(collected(), GroupBy("namespace"), Prices(of_any=Decimal(2)), before=collected(earlier))
    changes = {
        line.name: (line.hours.held, line.before.hours.held, float(line.before.costs.held or 0))
        for line in report.groups
        if line.before
    }
    assert changes == {"vision": (24, 0, 0), "books": (10, 4, 8), "gone": (0, 3, 6), None: (0, 0, 0)}
    assert report.total.before is not None
    assert (report.total.before.hours.held, report.total.before.costs.held) == (7, Fraction(14))
    assert not report.notes
    late = collected(earlier, facts(began_ms=SPAN.from_ms + 7_200_000))
    (note,) = make_report(collected(), GroupBy("namespace"), Prices(), before=late).notes
    assert note.message.startswith("in the span before, nothing is known before")
    table = render_table(report, None)
    assert "+24.00 (new)" in table
    assert "-3.00 (gone)" in table
    assert "+54.00" in table  # of all costs: 68 and 14


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        ("render-7d9c5b8f4d-x2x9k", ("render", "Deployment")),
        ("db-0", ("db", "StatefulSet")),
        ("db-10", ("db", "StatefulSet")),
        ("db-01", ("db-01", "")),
        ("train-29916660-x2x9k", ("train", "CronJob")),
        ("agent-x2x9k", ("agent", "")),
        ("agent-abcde", ("agent-abcde", "")),  # no vowel is generated
        ("notebook", ("notebook", "")),
        ("-0", ("-0", "")),
    ],
)
def test_the_name_of_a_pod_tells_its_workload_by_its_controllers_form(pod: str, workload: tuple[str, str]) -> None:
    assert workload_of_name(pod) == workload


def test_a_recorded_workload_names_its_unrecorded_namesakes() -> None:
    rows = [
        row("a", "web-7d9c5b8f4d-x2x9k", Amounts(HOUR), workload_name="web", workload_kind="Rollout"),
        row("a", "web-7d9c5b8f4d-q4q4q", Amounts(HOUR)),
        row("b", "web-7d9c5b8f4d-q4q4q", Amounts(HOUR)),
    ]
    report = made(GroupBy("workload"), rows=rows)
    assert {line.name: line.hours.held for line in report.groups if line.name} == {
        "a/Rollout/web": 2,
        "b/Deployment/web": 1,
    }
    assert "no workload was recorded for 2.00 GPU-hours: the pods' names tell it" in str(report.notes)


def test_a_workload_recorded_as_two_kinds_names_no_kind_to_its_namesakes() -> None:
    recorded = {"workload_name": "web", "workload_kind": "Rollout"}
    rows = [
        row("a", "web-7d9c5b8f4d-x2x9k", Amounts(HOUR), **recorded),
        row("a", "web-7d9c5b8f4d-x2x9w", Amounts(HOUR), workload_name="web", workload_kind="Deployment"),
        row("a", "web-7d9c5b8f4d-x2x9v", Amounts(HOUR), **recorded),
        row("a", "web-7d9c5b8f4d-q4q4q", Amounts(4 * HOUR)),
        row("a", "plain-0", Amounts(HOUR / 2), workload_name="plain"),
    ]
    report = made(GroupBy("workload"), rows=rows)
    held = {line.name: line.hours.held for line in report.groups if line.name}
    assert held == {"a/web": 4, "a/Rollout/web": 2, "a/Deployment/web": 1, "a/plain": 0.5}


# issue 20, line 1
def test_nodes_of_one_name_in_two_clusters_count_as_two() -> None:
    rows = [
        row("a", "p", Amounts(hours * HOUR), uuid=uuid, queue="q") for hours, uuid in ((20, "GPU-1"), (24, "GPU-2"))
    ]
    clusters = [(key._replace(cluster=cluster), *more) for (key, *more), cluster in zip(rows, "xy", strict=True)]
    known = facts(
        capacity={("x/n", H100): 24 * HOUR, ("y/n", A100): 24 * HOUR}, seen_ms={"x/n": SPAN.ms, "y/n": SPAN.ms}
    )
    kinds = ("node", "cluster", "namespace", "pod", "workload", "queue")
    by = {name: made(read_by(name), rows=clusters, facts=known) for name in kinds}  # type: ignore[arg-type]  # as below
    held = {name: {line.name: (line.hours.held, line.hours.free) for line in made.groups} for name, made in by.items()}
    assert held["node"] == {"y/n": (24, 0), "x/n": (20, 4)}
    assert held["cluster"] == {"y": (24, 0), "x": (20, 4)}
    assert held["namespace"] == {"a": (44, 0), None: (0, 4)}
    assert held["pod"] == {"y/a/p": (24, 0), "x/a/p": (20, 0), None: (0, 4)}
    assert held["workload"] == {"y/a/p": (24, 0), "x/a/p": (20, 0), None: (0, 4)}
    assert held["queue"] == {"y/q": (24, 0), "x/q": (20, 0), None: (0, 4)}
    assert by["node"].held_of_capacity == pytest.approx(44 / 48)
    of_one = made(read_by("node"), rows=clusters[:1], facts=SpanFacts())  # type: ignore[arg-type]  # `more` has no types
    assert [line.name for line in of_one.groups] == ["n"]  # one cluster need not be named
