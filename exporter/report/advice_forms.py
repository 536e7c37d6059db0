"""Advice as text, JSON and CSV, with the queries that each advice rests on.

Tests: tests/report/test_advice_forms.py.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from exporter.report.advice import Advice
from exporter.report.costs import JOULES_OF_KWH, SECONDS_OF_HOUR
from exporter.report.formatting import clean, number
from exporter.report.forms import MOST_CHARS_OF_NOTE, rows_as_csv
from exporter.report.sizes import GpuSize
from exporter.report.span import Span, written
from exporter.wording import counted, listed

ADVICE_FORMS = ("table", "json", "csv")
_EVIDENCE = ("memory peak", "activity p95", "activity peak")
_NAMED = 3  # workloads that are named for each reason
_KEEP = "what it holds"


def render_advice(advices: Sequence[Advice], span: Span, form: str) -> str:
    """All advice in one of ADVICE_FORMS."""
    if form == "table":
        return "\n".join(_lines(advices, span)) + "\n"
    ends = {"from": written(span.from_ms), "to": written(span.to_ms)}
    records = [{**ends, **_record(advice)} for advice in advices]
    if form == "json":
        return json.dumps({"advice": records}, indent=2) + "\n"
    headings = list(records[0]) if records else []
    rows = [[_cell(value) for value in record.values()] for record in records]
    return rows_as_csv([headings, *rows])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _lines(advices: Sequence[Advice], span: Span) -> Iterator[str]:
    yield f"What would have sufficed from {' to '.join(span.shown())}, with a margin of 20 %\n"
    for advice in advices:
        if not advice.refused:
            yield from _lines_of(advice)
    yield from _refusals([advice for advice in advices if advice.refused])


def _lines_of(advice: Advice) -> Iterator[str]:
    hours = number(advice.amounts.held / SECONDS_OF_HOUR)
    beyond = number(advice.beyond / SECONDS_OF_HOUR)
    size = _name_of(advice.size)
    slower = _name_of(advice.slower)
    yield f"{clean(advice.name)}: {hours} GPU-hours of {clean(advice.held)} of {clean(advice.model)}"
    cost = f"beyond: {beyond} GPU-hours, cost {number(advice.cost)}"
    yield f"  sufficient: {size}; {slower} if it may be slower at times; {cost}"
    for what, (_, evidence) in zip(_EVIDENCE, advice.peaks, strict=False):
        at = f"{evidence.at_ms / 1000:.3f}"
        yield f"  {what}: {evidence.value:g} at {at}: {clean(evidence.query, MOST_CHARS_OF_NOTE)}"


def _name_of(size: GpuSize | None) -> str:
    return size.name if size else _KEEP


def _refusals(refused: Sequence[Advice]) -> Iterator[str]:
    """A line for each reason, with its workloads. If there is only one workload, the line has that one's figures."""
    if not refused:
        return
    yield f"No advice for {counted(len(refused), 'workload')}:"
    of_reasons = defaultdict[str, list[Advice]](list)
    for advice in refused:
        of_reasons[advice.refused_for].append(advice)
    most_first = sorted(of_reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    for reason, advices in most_first:
        words = advices[0].refused if len(advices) == 1 else reason
        workloads = listed([clean(advice.name) for advice in advices], _NAMED)
        yield f"  {clean(words, MOST_CHARS_OF_NOTE)}: {workloads}"
    if len(refused) > _NAMED:
        yield "  --format csv has each, with its own figures"


def _record(advice: Advice) -> dict[str, object]:
    """The fields of JSON and CSV. A part that is refused or not known is None."""
    is_refused = bool(advice.refused)
    memory, p95, activity = [value for value, _ in advice.peaks] or (None, None, None)
    return {
        "workload": advice.name,
        "model": advice.model,
        "held": advice.held,
        "sufficient": None if is_refused else _name_of(advice.size),
        "sufficient_if_slower": None if is_refused else _name_of(advice.slower),
        "no_advice": advice.refused or None,
        "memory_peak_bytes": memory,
        "activity_p95": p95,
        "activity_peak": activity,
        "gpu_hours_held": advice.amounts.held / SECONDS_OF_HOUR,
        "gpu_hours_beyond": None if is_refused else advice.beyond / SECONDS_OF_HOUR,
        "cost_beyond": advice.cost,
        "energy_kwh": advice.amounts.joules / JOULES_OF_KWH,
        "evidence": _evidence(advice),
    }


def _evidence(advice: Advice) -> Sequence[Mapping[str, object]]:
    return [
        {"what": what, "value": evidence.value, "query": evidence.query, "time": evidence.at_ms / 1000}
        for what, (_, evidence) in zip(_EVIDENCE, advice.peaks, strict=False)
    ]
