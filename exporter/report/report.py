"""The report, of which each form is made: what was collected, grouped and priced, and notes on what is not known."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.errors import Trouble
from exporter.report.groups import JOULES_OF_KWH, SECONDS_OF_HOUR, GroupBy, Prices, workload_of
from exporter.report.rows import Amounts, RowKey, SpanFacts
from exporter.report.span import Span, long_written, written

MOST_WASTEFUL = 10
_MOST_OF_ALL = 1.02  # of capacity, which is looked at twelve times in a piece of the span
_NAMED = 5
_SLACK_MS = 10 * 60_000
_SLACK_OF_SPAN = 0.02
_LEAST_GAP_SECONDS = 30.0
_LATE_MS = 120_000  # a scrape of whatever interval is less late
_LATE_OF_SPAN = 0.05
_GAPS = {
    "kubelet": "the kubelet did not say who held what",
    "page": "dcgm-exporter's page was missing: no use and no energy was counted",
    "exporter": "the exporter was away, or stood still",
}


class Moment(NamedTuple):
    """A piece of the span, and what all rows had of it."""

    span: Span
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """What a server has of a span: how much each row grew, its labels, and the facts beside that."""

    span: Span
    grown: Mapping[RowKey, Amounts]
    labels: Mapping[RowKey, Mapping[str, str]]
    facts: SpanFacts
    moments: Sequence[Moment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a group had. `name` is None for what belongs to no group, `cost` None where a price is missing."""

    name: str | None
    amounts: Amounts
    cost: float | None

    @property
    def held_hours(self) -> float:
        """GPU-hours that were held."""
        return self.amounts.held / SECONDS_OF_HOUR

    @property
    def used_hours(self) -> float:
        """GPU-hours that were used."""
        return self.amounts.used / SECONDS_OF_HOUR

    @property
    def idle_hours(self) -> float:
        """GPU-hours that were held while the device did nothing."""
        return self.amounts.idle / SECONDS_OF_HOUR

    @property
    def unused_hours(self) -> float:
        """GPU-hours held and not used; 0 where owners of a shared GPU use more than they hold."""
        return max(0.0, self.amounts.observed - self.amounts.used) / SECONDS_OF_HOUR

    @property
    def used_ratio(self) -> float | None:
        """Used, of what was held while its use was known; None for nothing. On a shared GPU it may be above 1."""
        return self.amounts.used / self.amounts.observed if self.amounts.observed else None

    @property
    def kwh(self) -> float:
        """The energy."""
        return self.amounts.joules / JOULES_OF_KWH


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`groups` are in order of what they held, most first. `capacity_hours` are the GPU-hours there were, or None."""

    span: Span
    by: GroupBy
    prices: Prices
    groups: Sequence[Line]
    total: Line
    wasteful: Sequence[Line]
    moments: Sequence[Moment]
    capacity_hours: float | None
    notes: Sequence[Trouble]

    @property
    def held_of_capacity(self) -> float | None:
        """0 to 1; None where capacity is unknown, or less than what was held: then the notes name the cause."""
        if not self.capacity_hours or self.total.held_hours > self.capacity_hours * _MOST_OF_ALL:
            return None
        return min(1.0, self.total.held_hours / self.capacity_hours)


class _Row(NamedTuple):
    key: RowKey
    labels: Mapping[str, str]
    model: str
    amounts: Amounts


def make_report(collected: ReportInput, by: GroupBy, prices: Prices) -> Report:
    """Group what was collected."""
    facts = collected.facts
    rows = list(_rows(collected))
    groups = _lines(rows, prices, lambda row: by.name_of(row.key, row.labels, row.model))
    workloads = _lines(rows, prices, lambda row: workload_of(row.key, row.labels))
    wasteful = sorted(
        (line for line in workloads if line.name and line.unused_hours), key=lambda line: -line.unused_hours
    )
    (total,) = _lines(rows, prices, lambda _: None) or (Line(name=None, amounts=Amounts(), cost=None),)
    capacity = sum(facts.capacity.values())
    return Report(
        span=collected.span,
        by=by,
        prices=prices,
        groups=groups,
        total=total,
        wasteful=wasteful[:MOST_WASTEFUL],
        moments=collected.moments,
        capacity_hours=capacity / SECONDS_OF_HOUR if capacity else None,
        notes=notes_of(
            facts,
            span=collected.span,
            by=by,
            overheld=_overheld(rows, facts),
            unpriced=sorted({row.model for row in rows if prices.cost(row.amounts, row.model) is None}),
            ungrouped=bool(rows) and not any(line.name for line in groups),
            has_workloads=any("workload_name" in row.labels for row in rows),
            unmeasured=sum(row.amounts.held for row in rows) > 0 and not any(row.amounts.joules for row in rows),
        ),
    )


def _overheld(rows: Iterable[_Row], facts: SpanFacts) -> Sequence[str]:
    """Nodes of which more was held than there was, by those that tell how many GPUs there were."""
    if not facts.capacity:
        return ()
    held = defaultdict[str, float](float)
    for row in rows:
        held[row.key.node] += row.amounts.held
    there = defaultdict[str, float](float)
    for (node, _), seconds in facts.capacity.items():
        there[node] += seconds
    return [node for node, seconds in sorted(held.items()) if seconds > there[node] * _MOST_OF_ALL]


def _rows(collected: ReportInput) -> Iterable[_Row]:
    of_nodes = defaultdict[str, set[str]](set)
    for node, model in collected.facts.capacity:
        of_nodes[node].add(model)
    # of a GPU that nobody held, its node's model if that has one alone
    only = {node: next(iter(models)) for node, models in of_nodes.items() if len(models) == 1}
    for key, amounts in collected.grown.items():
        model = collected.facts.models.get(key.uuid) or only.get(key.node, "")
        if amounts.observed < amounts.held / 2:
            # older exporters did not count what is observed: they took all for observed
            amounts = amounts._replace(observed=amounts.held)  # noqa: PLW2901
        yield _Row(key, collected.labels.get(key, {}), model, amounts)


def _lines(rows: Iterable[_Row], prices: Prices, name_of: Callable[[_Row], str | None]) -> Sequence[Line]:
    sums: dict[str | None, Amounts] = {}
    costs: dict[str | None, float | None] = {}
    for row in rows:
        name = name_of(row)
        sums[name] = sums.get(name, Amounts()).plus(row.amounts)
        before, cost = costs.get(name, 0.0), prices.cost(row.amounts, row.model)
        costs[name] = None if before is None or cost is None else before + cost
    lines = [
        Line(name=name, amounts=amounts, cost=costs[name] if prices.are_given else None)
        for name, amounts in sums.items()
    ]
    return sorted(
        lines, key=lambda line: (line.name is None, -line.amounts.held, -line.amounts.joules, line.name or "")
    )


def nothing_there(facts: SpanFacts, matched: bool) -> Trouble:
    """Why there are no accounts at all."""
    if facts.has_exporter:
        return Trouble(
            "",
            "the exporter is scraped, and keeps no accounts",
            "update it to a version that has pod_gpu_allocated_seconds_total on /metrics, with --accounting.mode on",
        )
    also = ", or nothing fits --match" if matched else ""
    return Trouble(
        "",
        f"this server has no accounts of that span (pod_gpu_allocated_seconds_total){also}",
        "let Prometheus scrape the exporter's /metrics beside /gpu/metrics: deploy/prometheus/scrape-config.yaml does",
    )


def notes_of(
    facts: SpanFacts,
    *,
    span: Span,
    by: GroupBy,
    overheld: Sequence[str],
    unpriced: Sequence[str],
    ungrouped: bool,
    has_workloads: bool,
    unmeasured: bool,
) -> Sequence[Trouble]:
    """What could not be known.

    `overheld` are nodes of which more GPUs were held than they have. `unpriced` are models that were held and have no
    price; "" is an unknown model.
    """
    return (
        *_of_time(facts, span),
        *_of_nodes(facts, span, overheld),
        *_of_gaps(facts),
        *_of_groups(by, ungrouped=ungrouped, has_workloads=has_workloads),
        *_of_prices(unpriced),
        *_of_measuring(facts, unmeasured=unmeasured),
    )


def _of_time(facts: SpanFacts, span: Span) -> Iterable[Trouble]:
    if facts.began_ms is not None and facts.began_ms - span.from_ms > min(_LATE_MS, span.ms * _LATE_OF_SPAN):
        kept = f"; the server keeps {facts.retention}" if facts.retention else ""
        unknown = long_written(facts.began_ms - span.from_ms)
        yield Trouble(
            "",
            f"nothing is known before {written(facts.began_ms)}: the first {unknown} of the span count nothing{kept}",
            "ask for a shorter span, or let Prometheus keep more (--storage.tsdb.retention.time)",
        )


def _of_nodes(facts: SpanFacts, span: Span, overheld: Sequence[str]) -> Iterable[Trouble]:
    began_ms = span.from_ms if facts.began_ms is None else facts.began_ms
    there_ms = span.to_ms - began_ms
    slack_ms = max(_SLACK_MS, there_ms * _SLACK_OF_SPAN)
    away = {node: there_ms - seen for node, seen in facts.seen_ms.items() if there_ms - seen > slack_ms}
    if away:
        named = (f"{node} ({long_written(int(away[node]))})" for node in sorted(away, key=lambda node: -away[node]))
        yield Trouble(
            "",
            f"for a part of the span there is nothing of {_count(len(away), 'node')}: {_list(named)}. Pods that were"
            " there before and after are counted; those that came and went meanwhile are not",
            "where a node is not new, and was not switched off: look at its exporter, and at its target in Prometheus",
        )
    unsized = sorted(set(overheld) - facts.seen_ms.keys())
    if unsized:
        yield Trouble(
            "",
            f"nobody told how many GPUs there were on {_list(unsized)} (node_gpu_capacity): what there was in all is"
            " too low",
            "does --match leave that family out, or a rule of Prometheus (metric_relabel_configs) drop it?",
        )
    several = [node for node in overheld if node not in away and node not in unsized]
    if several:
        yield Trouble(
            "",
            f"more was held on {_list(several)} than the GPUs there could give: another node has the same name",
            "ask for one cluster at a time with --match, such as --match cluster=a; give each cluster's Prometheus a"
            " label cluster of its own (external_labels)",
        )
    missing = sorted(facts.nodes_elsewhere - facts.seen_ms.keys())
    if missing:
        yield Trouble(
            "",
            f"{_count(len(missing), 'node')} with GPUs, by kube-state-metrics, but without accounts: {_list(missing)}",
            "does the exporter run there, and does Prometheus scrape it?",
        )
    if facts.restarts:
        nodes = (f"{node} ({count})" for node, count in sorted(facts.restarts.items()))
        yield Trouble(
            "",
            f"{_count(len(facts.restarts), 'exporter')} began to count anew: {_list(nodes)}. What came after the last"
            " scrape before that is missing",
            "with --accounting.state counters go on where they were",
        )


def _of_gaps(facts: SpanFacts) -> Iterable[Trouble]:
    for reason, seconds in sorted(facts.gaps.items()):
        if seconds >= _LEAST_GAP_SECONDS:
            why = _GAPS.get(reason, reason)
            yield Trouble(
                "",
                f"for about {long_written(int(seconds * 1000))}, all exporters together, {why}",
                "question 20 of docs/promql.md says where; doctor on that node says why",
            )


def _of_groups(by: GroupBy, *, ungrouped: bool, has_workloads: bool) -> Iterable[Trouble]:
    if by.kind == "workload" and not has_workloads:
        yield Trouble(
            "",
            "no row has a workload: pods stand in its place",
            "give the exporter --workload.labels and the right to read controllers (deploy/rbac.yaml)",
        )
    if by.kind == "label" and ungrouped:
        yield Trouble(
            "",
            f"no row has the label {by.label}",
            f"give the exporter --labels.pod-labels {by.label}; pods that ran before stay without it",
        )
    if by.kind == "model" and ungrouped:
        yield Trouble(
            "", "no GPU has a model: pod_gpu_info is missing", "let Prometheus scrape the exporter's /metrics"
        )


def _of_prices(unpriced: Sequence[str]) -> Iterable[Trouble]:
    if unpriced:
        named = _list(model or "a model that nobody knows" for model in unpriced)
        yield Trouble(
            "",
            f"there is no price for {named}: costs with its hours in them are left out",
            "add --price-per-gpu-hour MODEL=PRICE, or a price without a model for all others",
        )


def _of_measuring(facts: SpanFacts, *, unmeasured: bool) -> Iterable[Trouble]:
    if unmeasured:
        yield Trouble(
            "",
            "no energy was counted",
            "let dcgm-exporter measure DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION or DCGM_FI_DEV_POWER_USAGE",
        )
    if facts.has_renamed:
        yield Trouble(
            "",
            "Prometheus puts its own labels in the place of the pods', which it calls exported_pod and so on: what"
            " nobody held stands under the exporter's own pod",
            "set honor_labels: true, as deploy/prometheus/scrape-config.yaml does",
        )
    if facts.odd:
        yield Trouble(
            "", f"no number of 0 or more, and left out: {_count(facts.odd, 'value')}", "what else writes our families?"
        )
    for warning in facts.warnings:
        yield Trouble("", f"the server warns: {warning}", "some of its data may be missing from this report")
    for error in facts.unanswered.values():
        yield Trouble("", f"the server left a question unanswered: {error}", "what it was about is missing here")


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _list(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _NAMED} more" if len(all_names) > _NAMED else ""
    return ", ".join(all_names[:_NAMED]) + more
