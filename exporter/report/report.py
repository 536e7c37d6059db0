"""The report that every form is made of: collected amounts, grouped and priced, and notes on what is unknown."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from exporter.errors import Trouble
from exporter.report.capacity import LATE_SECONDS, MOST_OF_ALL, gpus_of
from exporter.report.costs import JOULES_OF_KWH, SECONDS_OF_HOUR, Cost, Costs, Prices
from exporter.report.groups import GroupBy, GroupNames
from exporter.report.notes import notes_of
from exporter.report.rows import Amounts, ReportRow, RowKey, SpanFacts
from exporter.report.span import Span
from exporter.wording import counted

MOST_WASTEFUL = 10
_LEAST_UNKNOWN = 0.01  # of the time held; the use of the last seconds is always unknown until the next page
_NO_COSTS = Costs()
_Pod = tuple[str, str, str]
_pod = attrgetter("key.cluster", "key.namespace", "key.pod")


class Moment(NamedTuple):
    """A piece of the span, and the amounts of all rows in it."""

    span: Span
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportInput:
    """The data that a server has of a span: each row's growth and labels, and the facts beside them."""

    span: Span
    grown: Mapping[RowKey, Amounts]
    labels: Mapping[RowKey, Mapping[str, str]]
    facts: SpanFacts
    moments: Sequence[Moment]


class Charge(NamedTuple):
    """A group's amounts of one model's GPUs in one cluster. `name` is None for amounts of no group."""

    name: str | None
    cluster: str
    model: str
    amounts: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the report: a group's amounts and costs. `name` is None for amounts of no group.

    If two spans are compared, `before` is the same group in the earlier span. `groups` is the number of groups that the
    line stands for.
    """

    name: str | None
    amounts: Amounts
    costs: Costs = _NO_COSTS
    before: "Line | None" = None
    groups: int = 1

    @property
    def hours(self) -> Amounts:
        """The amounts in GPU-hours. `joules` has kWh."""
        hours = Amounts(*(amount / SECONDS_OF_HOUR for amount in self.amounts))
        return hours._replace(joules=self.amounts.joules / JOULES_OF_KWH)

    @property
    def unused_hours(self) -> float:
        """GPU-hours of known use, less the used hours; 0 if owners of a shared GPU use more than they hold."""
        return max(0.0, self.amounts.observed - self.amounts.used) / SECONDS_OF_HOUR

    @property
    def use_unknown_hours(self) -> float:
        """GPU-hours held whose use is unknown."""
        return max(0.0, self.amounts.held - self.amounts.observed) / SECONDS_OF_HOUR

    def per_1000_tokens(self, amount: Cost | float) -> float | None:
        """The part of an energy or a cost for 1,000 tokens; None without tokens, or if the amount is unknown."""
        return None if amount is None or not self.amounts.tokens else float(amount) / self.amounts.tokens * 1000

    @property
    def used_ratio(self) -> float | None:
        """The part used of the hours of known use; None without such hours. On a shared GPU it may be above 1."""
        return self.amounts.used / self.amounts.observed if self.amounts.observed else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The report on a span.

    `groups` are in order of the hours held, most first, and are the sums of `charges`. `capacity_hours` are the
    GPU-hours of all GPUs, None if unknown. `span_before` is the span of each line's `before`.
    """

    span: Span
    by: GroupBy
    prices: Prices
    groups: Sequence[Line]
    total: Line
    wasteful: Sequence[Line]
    moments: Sequence[Moment]
    capacity_hours: float | None
    notes: Sequence[Trouble]
    charges: Sequence[Charge]
    span_before: Span | None = None
    gpus: float = 0.0  # the number of GPUs at a time, on nodes that report it

    @property
    def has_unknown_use(self) -> bool:
        """Whether the use of a group's hours was unobserved for so long that it changes `used_ratio`."""
        lines = (*self.groups, *self.wasteful, self.total)
        return any(line.use_unknown_hours > line.hours.held * _LEAST_UNKNOWN for line in lines)

    @property
    def has_unknown_idle(self) -> bool:
        """Whether it is unknown for so many hours of a group if the GPU was idle that the report must say it."""
        lines = (*self.groups, *self.wasteful, self.total)
        return any(line.hours.idle_unknown > line.hours.held * _LEAST_UNKNOWN for line in lines)

    @property
    def held_of_capacity(self) -> float | None:
        """The part of the capacity that was held, 0 to 1.

        None if the capacity is unknown, or less than what was held. Then the notes name the cause.
        """
        if not self.capacity_hours:
            return None
        late_hours = self.gpus * LATE_SECONDS / SECONDS_OF_HOUR
        if self.total.hours.held > self.capacity_hours * MOST_OF_ALL + late_hours:
            return None
        return min(1.0, self.total.hours.held / self.capacity_hours)


def make_report(
    collected: ReportInput, by: GroupBy, prices: Prices, *, top: int | None = None, before: ReportInput | None = None
) -> Report:
    """Make the report: group the collected amounts, and price them.

    Args:
        collected: the data of the span.
        by: the way to group rows.
        prices: the prices of GPU-hours and energy.
        top: the number of groups with a line of their own; None for all.
        before: the data of the span to compare with.
    """
    facts = collected.facts
    rows, rows_before, names = _rows_and_names(collected, before)

    def group_of(row: ReportRow) -> str | None:
        return by.name_of(row.key, row.labels, row.model, names)

    def workload_of(row: ReportRow) -> str | None:
        return names.name_of(row.key, row.labels)

    charges = _charges(rows, group_of)
    groups = _lines(charges, prices)
    if before:
        groups = _compared(groups, _lines(_charges(rows_before, group_of), prices))
    spans = [(side.facts, side.span) for side in (collected, before) if side]
    return Report(
        span=collected.span,
        by=by,
        prices=prices,
        groups=_folded(groups, top),
        total=sum_of(groups, None),
        wasteful=_most_wasteful(_lines(_charges(rows, workload_of), prices)),
        moments=collected.moments,
        capacity_hours=_capacity_hours(facts),
        notes=notes_of(rows, by, prices, spans, ungrouped=not any(line.name for line in groups)),
        charges=charges,
        span_before=before.span if before else None,
        gpus=sum(gpus_of(facts.capacity, facts.seen_ms).values()),
    )


def _rows_and_names(
    collected: ReportInput, before: ReportInput | None
) -> tuple[list[ReportRow], list[ReportRow], GroupNames]:
    """The rows of both spans, and the names for both. If tokens are counted, only rows of model servers stay."""
    rows = list(_rows(collected))
    rows_before = list(_rows(before)) if before else []
    names = GroupNames((row.key, row.labels) for row in (*rows, *rows_before))
    tokens = collected.facts.tokens
    if tokens is None:
        return rows, rows_before, names
    tokens_before = before.facts.tokens if before else None
    return _of_servers(rows, tokens, names), _of_servers(rows_before, tokens_before or {}, names), names


def _capacity_hours(facts: SpanFacts) -> float | None:
    if facts.tokens is not None:
        return None  # the report has only model servers, and their nodes have other GPUs, too
    return sum(facts.capacity.values()) / SECONDS_OF_HOUR or None


def _most_wasteful(workloads: Sequence[Line]) -> Sequence[Line]:
    """The workloads that hold most and use least."""
    wasteful = [line for line in workloads if line.name and line.unused_hours]
    wasteful.sort(key=lambda line: -line.unused_hours)
    return wasteful[:MOST_WASTEFUL]


def _of_servers(
    rows: Sequence[ReportRow], tokens: Mapping[_Pod, Mapping[str, float]], names: GroupNames
) -> list[ReportRow]:
    """The rows of workloads with a pod that counted tokens. Its rows get parts of them, by the time that each held."""
    held = defaultdict[_Pod, float](float)
    for row in rows:
        held[_pod(row)] += row.amounts.held
    # a pod's tokens for each GPU-second that it held
    rates = {pod: sum(of_models.values()) / held[pod] for pod, of_models in tokens.items() if held[pod]}
    workloads = {names.name_of(row.key, row.labels) for row in rows if _pod(row) in rates} - {None}
    of_servers = []
    for row in rows:
        if names.name_of(row.key, row.labels) in workloads:
            counted_tokens = rates.get(_pod(row), 0.0) * row.amounts.held
            of_servers.append(row._replace(amounts=row.amounts._replace(tokens=counted_tokens)))
    return of_servers


def _rows(collected: ReportInput) -> Iterator[ReportRow]:
    """All rows that have grown, and rows of nobody for the free hours of each model on each node."""
    capacity = defaultdict[str, dict[str, float]](dict)
    for (place, model), seconds in collected.facts.capacity.items():
        capacity[place][model] = seconds
    held = defaultdict[str, dict[str, float]](lambda: defaultdict(float))
    for row in _held_rows(collected, capacity):
        held[row.key.place][row.model] += row.amounts.held
        yield row
    for place, seconds_of_models in capacity.items():
        cluster, _, node = place.rpartition("/")
        key = RowKey("", "", "", "", "", node, cluster)
        for model, seconds in _free(seconds_of_models, held[place]).items():
            yield ReportRow(key, {}, model, Amounts(free=seconds))


def _held_rows(collected: ReportInput, capacity: Mapping[str, Mapping[str, float]]) -> Iterator[ReportRow]:
    """Rows that have grown. If a GPU's model is unknown, it is the only model that its node has in `capacity`."""
    places_with_observed = {key.place for key, amounts in collected.grown.items() if amounts.observed}
    for key, grown in collected.grown.items():
        amounts = grown
        models = capacity.get(key.place, {})
        only_model = next(iter(models)) if len(models) == 1 else ""
        if not amounts.observed and (amounts.used or key.place not in places_with_observed):
            # older exporters did not count observed time, and took all time for observed
            amounts = amounts._replace(observed=amounts.held)
        model = collected.facts.models.get(key.uuid) or only_model
        yield ReportRow(key, collected.labels.get(key, {}), model, amounts)


def _free(there: Mapping[str, float], held: Mapping[str, float]) -> Mapping[str, float]:
    """A node's seconds that nobody held, by model. Seconds held of an unknown model are taken from all models."""
    free = {model: max(0.0, seconds - held.get(model, 0.0)) for model, seconds in there.items()}
    of_all = max(0.0, sum(there.values()) - sum(held.values()))
    parts = sum(free.values())
    return {model: seconds * min(1.0, of_all / parts) for model, seconds in free.items() if seconds}


def _charges(rows: Iterable[ReportRow], name_of: Callable[[ReportRow], str | None]) -> Sequence[Charge]:
    sums: dict[tuple[str | None, str, str], Amounts] = {}
    for row in rows:
        of = name_of(row), row.key.cluster, row.model
        sums[of] = sums.get(of, Amounts()).plus(row.amounts)
    return [Charge(*of, amounts) for of, amounts in sums.items()]


def _lines(charges: Iterable[Charge], prices: Prices) -> Sequence[Line]:
    of_names = defaultdict[str | None, list[Line]](list)
    for charge in charges:
        costs = prices.of(charge.model, charge.amounts)
        of_names[charge.name].append(Line(name=charge.name, amounts=charge.amounts, costs=costs))
    return sorted((sum_of(lines, name) for name, lines in of_names.items()), key=_order)


def _order(line: Line) -> tuple[bool, float, float, float, str]:
    held_before = line.before.amounts.held if line.before else 0.0
    return line.name is None, -line.amounts.held, -line.amounts.joules, -held_before, line.name or ""


def sum_of(lines: Iterable[Line], name: str | None) -> Line:
    """The sum of the lines as one line, whose `before` is the sum of their `before`."""
    amounts = Amounts()
    costs = Costs()
    earlier = []
    for line in lines:
        amounts = amounts.plus(line.amounts)
        costs = costs.plus(line.costs)
        if line.before:
            earlier.append(line.before)
    before = sum_of(earlier, name) if earlier else None
    return Line(name=name, amounts=amounts, costs=costs, before=before)


def _compared(groups: Sequence[Line], earlier: Sequence[Line]) -> Sequence[Line]:
    """Each group with its earlier line. A new group had nothing before, and a group that is gone has nothing now."""
    names = dict.fromkeys(line.name for line in (*groups, *earlier))
    nothing = {name: Line(name=name, amounts=Amounts()) for name in names}
    now = nothing | {line.name: line for line in groups}
    before = nothing | {line.name: line for line in earlier}
    compared = [replace(now[name], before=before[name]) for name in names]
    return sorted(compared, key=_order)


def _folded(groups: Sequence[Line], top: int | None) -> Sequence[Line]:
    """The first `top` groups, one line for all other groups, and the line without a group."""
    named = [line for line in groups if line.name is not None]
    if top is None or len(named) <= top:
        return groups
    others = named[top:]
    rest = sum_of(others, f"({counted(len(others), 'other')})")
    return [*named[:top], replace(rest, groups=len(others)), *groups[len(named) :]]
