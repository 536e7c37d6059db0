"""What would have sufficed: of each workload, the smallest part of its GPUs' model that would have held it. Pure.

It must hold the highest peaks of memory and of activity, and 20 % more. What the samples of a span do not show is not
advised on.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from exporter.report.costs import SECONDS_OF_HOUR, Prices
from exporter.report.groups import GroupNames
from exporter.report.report import ReportInput
from exporter.report.rows import Amounts, RowKey
from exporter.report.sizes import GpuSize, share_of, sizes_of

MARGIN = 1.2
_LEAST_HOURS, _LEAST_SEEN = 24.0, 0.95
_SHARED = 0.98  # of what a device is of its GPU; less is held of one that others hold, too
# Families, by what their unit is in bytes or as a part of the time; the first that a row has counts. Of a shared device
# only the measured ones are its holder's own.
MEMORY: Final = {"DCGM_FI_DEV_FB_USED": 2.0**20, "DCGM_FI_DEV_FB_USED_BYTES": 1.0, "pod_gpu_memory_used_bytes": 1.0}
ACTIVITY: Final = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.0, "pod_gpu_utilization_ratio": 1.0, "DCGM_FI_DEV_GPU_UTIL": 0.01}
_MEASURED: Final = frozenset({"pod_gpu_memory_used_bytes", "pod_gpu_utilization_ratio"})


RowId = tuple[str, ...]  # of a RowKey the first five: DCGM's samples may not name the node, but a UUID is one GPU's


class Evidence(NamedTuple):
    """A value that a server gave, and the query and the moment (ms) that it gives it for again."""

    value: float
    query: str
    at_ms: int


@dataclass(slots=True)
class RowPeaks:
    """Of a row: evidence by function and family, for how many seconds it was there by family, and how it was held.

    `share` is the least of a GPU that it held, None if unknown; `has_several`: its container held several at once.
    """

    evidence: dict[tuple[str, str], Evidence] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    share: float | None = None
    profile: str = ""
    has_several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Of a workload on one model. `size` is None where nothing smaller would do, or `refused` says why nobody knows.

    `refused_for` is the same reason without this workload's own figures: many workloads may have it. `peaks` are the
    highest memory in bytes, and of a whole GPU (0 to 1) the p95 and the highest activity; empty where refused. `slower`
    holds the p95 and 20 %. `beyond` are the GPU-seconds paid for and not needed.
    """

    name: str
    model: str
    held: str
    amounts: Amounts
    refused: str = ""
    refused_for: str = ""
    size: GpuSize | None = None
    slower: GpuSize | None = None
    beyond: float = 0.0
    cost: float | None = None
    peaks: Sequence[tuple[float, Evidence]] = ()


class _NoAdvice(NamedTuple):
    """Why there is no advice: in words that fit many workloads, and of this one. Both are "" where there is advice."""

    kind: str = ""
    exactly: str = ""


class _HeldDevice(NamedTuple):
    key: RowKey
    amounts: Amounts
    peaks: RowPeaks
    size: tuple[float, float]  # of its device: see share_of

    @property
    def share(self) -> float:
        return self.peaks.share or self.size[0]

    @property
    def is_shared(self) -> bool:
        return self.share < self.size[0] * _SHARED

    def family(self, of: Iterable[str]) -> str:
        """The first that the row has and that is its own; "" for none."""
        own = (each for each in of if not self.is_shared or each in _MEASURED)
        return next((each for each in own if ("max", each) in self.peaks.evidence), "")


def advise(collected: ReportInput, peaks: Mapping[RowId, RowPeaks], prices: Prices) -> Sequence[Advice]:
    """Advice, or why there is none, for each workload and model; those first that paid most for nothing."""
    names = GroupNames(collected.labels.items())
    groups = defaultdict[tuple[str, str], list[_HeldDevice]](list)
    for key, amounts in collected.grown.items():
        model = collected.facts.models.get(key.uuid, "")
        if amounts.held and (name := names.name_of(key, collected.labels.get(key, {}))):
            of = peaks.get(key[:5]) or RowPeaks()
            groups[name, model].append(_HeldDevice(key, amounts, of, share_of(of.profile, model)))
    restarts = collected.facts.restarts
    made = (_advice(name, model, rows, restarts, prices) for (name, model), rows in groups.items())
    return sorted(made, key=lambda one: (bool(one.refused), -one.beyond, -one.amounts.held, one.name))


def _advice(name: str, model: str, rows: Sequence[_HeldDevice], restarts: Mapping[str, int], prices: Prices) -> Advice:
    amounts = Amounts()
    for row in rows:
        amounts = amounts.plus(row.amounts)
    held = ", ".join(sorted({f"{'part of ' * row.is_shared}{row.peaks.profile or 'a GPU'}" for row in rows}))
    why = _refused(model, rows, restarts)
    if why.kind:
        refused = why.exactly or why.kind
        return Advice(name=name, model=model, held=held, amounts=amounts, refused=refused, refused_for=why.kind)
    asked = (("max", MEMORY), ("p95", ACTIVITY), ("max", ACTIVITY))
    peaks = [max(_peak(row, function, of) for row in rows) for function, of in asked]
    memory, p95, peak = (value * MARGIN for value, _ in peaks)
    most = max(row.share for row in rows)
    fits = [each for each in sizes_of(model) if each.memory >= memory and each.share < most * _SHARED]
    slower, size = (next((each for each in fits if each.least >= least), None) for least in (p95, peak))
    share, price = size.share if size else 1.0, prices.of_model(model)
    beyond = sum(row.amounts.held * max(0.0, 1 - share / row.share) for row in rows)
    cost = None if price is None else float(price) * beyond / SECONDS_OF_HOUR
    advice = Advice(name=name, model=model, held=held, amounts=amounts, size=size, slower=slower, beyond=beyond)
    return replace(advice, cost=cost, peaks=peaks)


def _peak(row: _HeldDevice, function: str, of: Mapping[str, float]) -> tuple[float, Evidence]:
    """In bytes, or as a part of a whole GPU."""
    family = row.family(of)
    evidence = row.peaks.evidence[function, family]
    return evidence.value * of[family] * (1.0 if of is MEMORY else row.size[1]), evidence


def _refused(model: str, rows: Sequence[_HeldDevice], restarts: Mapping[str, int]) -> _NoAdvice:
    hours = sum(row.amounts.held / row.share for row in rows) / SECONDS_OF_HOUR
    if not sizes_of(model):
        return _NoAdvice(f"what {model or 'an unknown model'} can be cut into is not known")
    if hours < _LEAST_HOURS:
        return _NoAdvice("held for less than a day", f"held for {hours:.1f} hours, which is less than a day")
    if anew := sorted({row.key.place for row in rows} & restarts.keys()):
        began, so = "the exporter began to count anew", "what came before that is not known"
        return _NoAdvice(f"{began}: {so}", f"{began} on {', '.join(anew[:3])}: {so}")
    if any(row.peaks.has_several for row in rows):
        return _NoAdvice("a container held several devices at once, and MIG instances and shares do not work together")
    if any(row.peaks.share is None for row in rows):
        return _NoAdvice("which part of a GPU it held is not known (pod_gpu_allocated_ratio)")
    return _unseen("memory", MEMORY, rows, hours) or _unseen("activity", ACTIVITY, rows, hours) or _NoAdvice()


def _unseen(what: str, of: Mapping[str, float], rows: Sequence[_HeldDevice], hours: float) -> _NoAdvice | None:
    unmeasured = [row for row in rows if not row.family(of)]
    if unmeasured:
        shared = "it shared a GPU, and " if unmeasured[0].is_shared else ""
        return _NoAdvice(f"{shared}its own {what} was not measured")
    seen = sum(row.peaks.seen.get(row.family(of), 0.0) for row in rows) / SECONDS_OF_HOUR
    if seen < hours * _LEAST_SEEN:
        return _NoAdvice(
            f"its {what} is not known for all of the time", f"its {what} is known for {seen:.1f} of {hours:.1f} hours"
        )
    return None
