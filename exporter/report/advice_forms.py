"""Advice as text, JSON and CSV, each with the queries that it rests on."""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from exporter.errors import counted, listed
from exporter.report.advice import Advice
from exporter.report.costs import JOULES_OF_KWH, SECONDS_OF_HOUR
from exporter.report.formatting import clean, number
from exporter.report.forms import MOST_CHARS_OF_NOTE, rows_as_csv
from exporter.report.span import Span, written

ADVICE_FORMS = ("table", "json", "csv")
_EVIDENCE = ("memory peak", "activity p95", "activity peak")
_NAMED = 3  # workloads of a reason
_KEEP = "what it holds"


def render_advice(advices: Sequence[Advice], span: Span, form: str) -> str:
    """In one of ADVICE_FORMS."""
    if form == "table":
        return "\n".join(_lines(advices, span)) + "\n"
    ends = {"from": written(span.from_ms), "to": written(span.to_ms)}
    records = [{**ends, **_record(one)} for one in advices]
    if form == "json":
        return json.dumps({"advice": records}, indent=2) + "\n"
    rows = [
        ["" if cell is None else cell if isinstance(cell, str) else json.dumps(cell) for cell in one.values()]
        for one in records
    ]
    return rows_as_csv([list(records[0]) if records else [], *rows])


def _lines(advices: Sequence[Advice], span: Span) -> Iterator[str]:
    yield f"What would have sufficed from {' to '.join(span.shown())}, with a margin of 20 %\n"
    for one in advices:
        if one.refused:
            continue
        size, slower = (of.name if of else _KEEP for of in (one.size, one.slower))
        hours, beyond = (number(seconds / SECONDS_OF_HOUR) for seconds in (one.amounts.held, one.beyond))
        yield f"{clean(one.name)}: {hours} GPU-hours of {clean(one.held)} of {clean(one.model)}"
        cost = f"beyond: {beyond} GPU-hours, cost {number(one.cost)}"
        advice = f"sufficient: {size}; {slower} if it may be slower at times; {cost}"
        yield f"  {advice}"
        for what, (_, (value, query, at_ms)) in zip(_EVIDENCE, one.peaks, strict=False):
            yield f"  {what}: {value:g} at {at_ms / 1000:.3f}: {clean(query, MOST_CHARS_OF_NOTE)}"
    yield from _refusals([one for one in advices if one.refused])


def _refusals(refused: Sequence[Advice]) -> Iterator[str]:
    """A line for each reason, with the workloads that it is of; where it is of one alone, with that one's figures."""
    if not refused:
        return
    yield f"No advice for {counted(len(refused), 'workload')}:"
    of_reasons = defaultdict[str, list[Advice]](list)
    for one in refused:
        of_reasons[one.refused_for].append(one)
    for reason, ones in sorted(of_reasons.items(), key=lambda item: (-len(item[1]), item[0])):
        words = ones[0].refused if len(ones) == 1 else reason
        yield f"  {clean(words, MOST_CHARS_OF_NOTE)}: {listed([clean(one.name) for one in ones], _NAMED)}"
    if len(refused) > _NAMED:
        yield "  --format csv has each, with its own figures"


def _record(one: Advice) -> dict[str, object]:
    memory, p95, peak = [value for value, _ in one.peaks] or (None, None, None)
    size, slower = (None if one.refused else of.name if of else _KEEP for of in (one.size, one.slower))
    pairs = zip(_EVIDENCE, one.peaks, strict=False)
    return {
        "workload": one.name,
        "model": one.model,
        "held": one.held,
        "sufficient": size,
        "sufficient_if_slower": slower,
        "no_advice": one.refused or None,
        "memory_peak_bytes": memory,
        "activity_p95": p95,
        "activity_peak": peak,
        "gpu_hours_held": one.amounts.held / SECONDS_OF_HOUR,
        "gpu_hours_beyond": None if one.refused else one.beyond / SECONDS_OF_HOUR,
        "cost_beyond": one.cost,
        "energy_kwh": one.amounts.joules / JOULES_OF_KWH,
        "evidence": [
            {"what": what, "value": of.value, "query": of.query, "time": of.at_ms / 1000} for what, (_, of) in pairs
        ],
    }
