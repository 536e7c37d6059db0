"""Notes on what a report could not know, each with what to do about it. Pure.

Tests: tests/report/test_notes.py, tests/report/test_report.py.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial

from exporter.errors import Trouble
from exporter.report.capacity import gpus_of, most_held
from exporter.report.costs import SECONDS_OF_HOUR, Prices
from exporter.report.formatting import number
from exporter.report.groups import GroupBy, workload_of_name
from exporter.report.rows import ReportRow, SpanFacts
from exporter.report.span import Span, long_written, written
from exporter.wording import counted, listed

_note = partial(Trouble, "")
_list = partial(listed, most=5)
_SLACK_MS = 10 * 60_000
_SLACK_OF_SPAN = 0.02
_LEAST_GAP_SECONDS = 30.0
_LATE_MS = 120_000  # whatever the interval is, the first scrape comes before this
_LATE_OF_SPAN = 0.05
_GAPS = {
    "kubelet": "the kubelet did not say who held what",
    "page": "dcgm-exporter's page was missing: use was not counted, and energy only as far as DCGM's counter went on",
    "exporter": "the exporter was away, or stood still",
}


def nothing_there(facts: SpanFacts, matched: bool) -> Trouble:
    """The reason why there are no accounts at all."""
    if facts.has_exporter:
        return _note(
            "the exporter is scraped, and keeps no accounts",
            "update it to a version that has pod_gpu_allocated_seconds_total on /metrics, with --accounting.mode on",
        )
    also = ", or nothing fits --match" if matched else ""
    return _note(
        f"this server has no accounts of that span (pod_gpu_allocated_seconds_total){also}",
        "let Prometheus scrape the exporter's /metrics beside /gpu/metrics: deploy/prometheus/scrape-config.yaml does",
    )


def notes_of(
    rows: Sequence[ReportRow], by: GroupBy, prices: Prices, spans: Sequence[tuple[SpanFacts, Span]], *, ungrouped: bool
) -> Sequence[Trouble]:
    """Notes on the first of the `spans`, and on the second, with which it is compared, if there is one."""
    (facts, span), *before = spans
    overheld = _overheld(rows, facts, _there_ms(facts, span) / 1000)
    earlier: list[Trouble] = []
    for facts_before, span_before in before:
        earlier += (*_of_time(facts_before, span_before), *_of_nodes(facts_before, span_before, ()))
    return (
        *_of_time(facts, span),
        *(_note(f"in the span before, {note.message}", note.remedy) for note in earlier),
        *_of_nodes(facts, span, overheld),
        *_of_gaps(facts),
        *_of_verdicts(facts),
        *_of_groups(by, ungrouped=bool(rows) and ungrouped, unrecorded=_unrecorded(rows)),
        *_of_prices(_unpriced(rows, prices)),
        *_of_measuring(facts, rows),
    )


def _of_time(facts: SpanFacts, span: Span) -> Iterable[Trouble]:
    if facts.began_ms is None:
        return
    unknown_ms = facts.began_ms - span.from_ms
    if unknown_ms > min(_LATE_MS, span.ms * _LATE_OF_SPAN):
        kept = f"; the server keeps {facts.retention}" if facts.retention else ""
        first = long_written(unknown_ms)
        yield _note(
            f"nothing is known before {written(facts.began_ms)}: the first {first} of the span count nothing{kept}",
            "ask for a shorter span, or let Prometheus keep more (--storage.tsdb.retention.time)",
        )


def _there_ms(facts: SpanFacts, span: Span) -> int:
    """The part of the span of which the server has samples, in ms."""
    began_ms = span.from_ms if facts.began_ms is None else facts.began_ms
    return span.to_ms - began_ms


def _of_nodes(facts: SpanFacts, span: Span, overheld: Sequence[str]) -> Iterable[Trouble]:
    """Notes on nodes that were away, not counted or counted anew. Nodes in `overheld` had more held than they have."""
    there_ms = _there_ms(facts, span)
    slack_ms = max(_SLACK_MS, there_ms * _SLACK_OF_SPAN)
    away = {node: there_ms - seen for node, seen in facts.seen_ms.items() if there_ms - seen > slack_ms}
    if away:
        named = [f"{node} ({long_written(int(away[node]))})" for node in sorted(away, key=lambda node: -away[node])]
        yield _note(
            f"{counted(len(away), 'node')} had no samples for a part of the span: {_list(named)}. Pods that were there"
            " before and after are counted; pods that came and went meanwhile are not",
            "where a node is not new, and was not switched off: look at its exporter, and at its target in Prometheus",
        )
    unsized = sorted(set(overheld) - facts.seen_ms.keys())
    if unsized:
        yield _note(
            f"the number of GPUs on {_list(unsized)} is not known (node_gpu_capacity): the capacity is too low",
            "does --match leave that family out, or a rule of Prometheus (metric_relabel_configs) drop it?",
        )
    several = [node for node in overheld if node not in away and node not in unsized]
    if several:
        yield _note(
            f"more was held on {_list(several)} than the GPUs there could give: another node has the same name, or an"
            " allocator granted more of its GPUs than there is",
            "give each cluster's Prometheus a label cluster of its own (external_labels), or name the label that tells"
            " clusters apart with --cluster-label; doctor names GPUs that are over-committed",
        )
    missing = sorted(facts.nodes_elsewhere - facts.seen_ms.keys())
    if missing:
        yield _note(
            f"{counted(len(missing), 'node')} with GPUs, by kube-state-metrics, but without accounts: {_list(missing)}",
            "does the exporter run there, and does Prometheus scrape it?",
        )
    if facts.restarts:
        nodes = [f"{node} ({count})" for node, count in sorted(facts.restarts.items())]
        yield _note(
            f"{counted(len(facts.restarts), 'exporter')} began to count anew: {_list(nodes)}. What came after the last"
            " scrape before that is missing",
            "with --accounting.state counters go on where they were",
        )


def _of_gaps(facts: SpanFacts) -> Iterable[Trouble]:
    for reason, seconds in sorted(facts.gaps.items()):
        if seconds >= _LEAST_GAP_SECONDS:
            why = _GAPS.get(reason, reason)
            yield _note(
                f"for about {long_written(int(seconds * 1000))}, all exporters together, {why}",
                "question 20 of docs/promql.md says where; doctor on that node says why",
            )


def _of_verdicts(facts: SpanFacts) -> Iterable[Trouble]:
    if facts.failing_seconds:
        hours = number(facts.failing_seconds / 3600)
        yield _note(
            f"containers held devices that were failing or gone for about {hours} GPU-hours, which are in the sums",
            "pod_gpu_device_verdict says which and when, docs/health.md what to do",
        )


def _of_groups(by: GroupBy, *, ungrouped: bool, unrecorded: tuple[float, float]) -> Iterable[Trouble]:
    """Notes on rows without the label by which they are grouped. `unrecorded`: see `_unrecorded`."""
    by_name, by_nothing = unrecorded
    if by.kind == "workload" and by_name + by_nothing:
        names = f"{number(by_name)} GPU-hours: the pods' names tell it (a Rollout's look like a Deployment's)"
        nothing = f"{number(by_nothing)} GPU-hours: names do not tell it either, so each pod is a group of its own"
        parts = []
        if by_name:
            parts.append(names)
        if by_nothing:
            parts.append(nothing)
        yield _note(
            f"no workload was recorded for {'; for '.join(parts)}",
            "give the exporter --workload.labels and the right to read controllers (deploy/rbac.yaml)",
        )
    if by.kind == "cluster" and ungrouped:
        yield _note(
            "no row has a label for its cluster",
            "give each Prometheus one (external_labels), or name the label that it has with --cluster-label",
        )
    if by.kind == "label" and ungrouped:
        yield _note(
            f"no row has the label {by.label}",
            f"give the exporter --labels.pod-labels {by.label}; pods that ran before stay without it",
        )
    if by.kind == "queue" and ungrouped:
        yield _note(
            "no row names a queue",
            "let the exporter read pods (docs/bill.md#queues says how); pods that ran before then stay without a queue",
        )
    if by.kind == "model" and ungrouped:
        yield _note("no GPU has a model: pod_gpu_info is missing", "let Prometheus scrape the exporter's /metrics")


def _of_prices(unpriced: Sequence[str]) -> Iterable[Trouble]:
    if unpriced:
        named = _list([model or "a model that nobody knows" for model in unpriced])
        yield _note(
            f"there is no price for {named}: costs that include its hours are left out",
            "add --price-per-gpu-hour MODEL=PRICE, or a price without a model for all others",
        )


def _of_measuring(facts: SpanFacts, rows: Sequence[ReportRow]) -> Iterable[Trouble]:
    """Notes on samples that were missing, renamed or unreadable, and on warnings of the Prometheus server."""
    tokens = facts.tokens or {}
    several = ["/".join(pod[1:]) for pod, models in sorted(tokens.items()) if len(models) > 1]
    if several:
        message = "a pod's GPUs cannot be divided among its models, so the tokens of all are added up"
        yield _note(f"{message}: {_list(several)}", "let each model have a pod of its own")
    if sum(row.amounts.held for row in rows) > 0 and not any(row.amounts.joules for row in rows):
        yield _note(
            "no energy was counted",
            "let dcgm-exporter measure DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION or DCGM_FI_DEV_POWER_USAGE",
        )
    if facts.has_renamed:
        yield _note(
            "Prometheus renames the pods' labels (exported_pod and so on) and puts its own in their place: GPUs that"
            " nobody held are under the exporter's own pod",
            "set honor_labels: true, as deploy/prometheus/scrape-config.yaml does",
        )
    if facts.odd:
        yield _note(
            f"{counted(facts.odd, 'value')} left out: no number of 0 or more",
            "does another program write families of these names?",
        )
    for warning in facts.warnings:
        yield _note(f"the server warns: {warning}", "some of its data may be missing from this report")
    for error in facts.unanswered.values():
        yield _note(f"the server left a question unanswered: {error}", "what it asked for is missing here")


def _overheld(rows: Iterable[ReportRow], facts: SpanFacts, there_seconds: float) -> Sequence[str]:
    """The nodes on which more was held than their GPUs can have given in all of the time.

    A node whose number of GPUs is unknown counts as a node with none; if it is unknown for all nodes, none is named.
    """
    if not facts.capacity:
        return ()
    held = defaultdict[str, float](float)
    for row in rows:
        held[row.key.place] += row.amounts.held
    gpus = gpus_of(facts.capacity, facts.seen_ms)
    return [
        place for place, seconds in sorted(held.items()) if seconds > most_held(gpus.get(place, 0.0), there_seconds)
    ]


def _unpriced(rows: Iterable[ReportRow], prices: Prices) -> Sequence[str]:
    if not prices.are_of_gpus:
        return ()
    there = {row.model for row in rows if row.amounts.held or row.amounts.free}
    return sorted(model for model in there if prices.of_model(model) is None)


def _unrecorded(rows: Iterable[ReportRow]) -> tuple[float, float]:
    """GPU-hours without a recorded workload: of pods whose names show it, and of pods whose names do not."""
    by_name = by_nothing = 0.0
    for row in rows:
        if not row.key.pod or "workload_name" in row.labels:
            continue
        name, _ = workload_of_name(row.key.pod)
        if name == row.key.pod:
            by_nothing += row.amounts.held
        else:
            by_name += row.amounts.held
    return by_name / SECONDS_OF_HOUR, by_nothing / SECONDS_OF_HOUR
