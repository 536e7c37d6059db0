"""The report: what was collected, grouped and priced. Every form that it is written in is made of this."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exporter.report.by import By, workload_of
from exporter.report.facts import Facts
from exporter.report.notes import Note, notes_of
from exporter.report.prices import JOULES_OF_KWH, SECONDS_OF_HOUR, Prices
from exporter.report.rows import Amounts, Key
from exporter.report.span import Span

MOST_WASTEFUL = 10
_MOST_OF_ALL = 1.02  # of capacity, which is looked at twelve times in a piece of the span


class Moment(NamedTuple):
    """A piece of the span, and what all rows had of it."""

    span: Span
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a server told of a span: how much each row grew, its labels, and what there is beside that."""

    span: Span
    grown: Mapping[Key, Amounts]
    labels: Mapping[Key, Mapping[str, str]]
    facts: Facts
    moments: Sequence[Moment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a group had. `name` None is what belongs to no group; `cost` None where a price is missing, or all are."""

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
        """GPU-hours seen to be held and not used. Owners of a shared GPU may use more than they hold: then it is 0."""
        return max(0.0, self.amounts.observed - self.amounts.used) / SECONDS_OF_HOUR

    @property
    def used_ratio(self) -> float | None:
        """Of what was held while its use was known; None for nothing. Owners of a shared GPU may use more than all."""
        return self.amounts.used / self.amounts.observed if self.amounts.observed else None

    @property
    def kwh(self) -> float:
        """The energy."""
        return self.amounts.joules / JOULES_OF_KWH


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """`groups` stand by what they held, most first. `capacity_hours` are the GPU-hours that there were, or None."""

    span: Span
    by: By
    prices: Prices
    groups: Sequence[Line]
    total: Line
    wasteful: Sequence[Line]
    moments: Sequence[Moment]
    capacity_hours: float | None
    notes: Sequence[Note]

    @property
    def held_of_capacity(self) -> float | None:
        """0 to 1; None where capacity is unknown, or less than what was held: then the notes name the cause."""
        if not self.capacity_hours or self.total.held_hours > self.capacity_hours * _MOST_OF_ALL:
            return None
        return min(1.0, self.total.held_hours / self.capacity_hours)


class _Row(NamedTuple):
    key: Key
    labels: Mapping[str, str]
    model: str
    amounts: Amounts


def make_report(collected: Collected, by: By, prices: Prices) -> Report:
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


def _overheld(rows: Iterable[_Row], facts: Facts) -> Sequence[str]:
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


def _rows(collected: Collected) -> Iterable[_Row]:
    of_nodes = defaultdict[str, set[str]](set)
    for node, model in collected.facts.capacity:
        of_nodes[node].add(model)
    # of a GPU that nobody held, its node's model if that has one alone
    only = {node: next(iter(models)) for node, models in of_nodes.items() if len(models) == 1}
    for key, amounts in collected.grown.items():
        model = collected.facts.models.get(key.uuid) or only.get(key.node, "")
        if amounts.observed < amounts.held / 2:
            # an exporter of before did not count it: to that, all was observed
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
