"""Advice for each workload: the smallest part of its GPUs' model that would have sufficed. Pure.

The part must have room for the highest peaks of memory and of activity, and for 20 % more. There is no advice for
a workload whose peaks the samples of the span do not show.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from exporter.report.costs import SECONDS_OF_HOUR, Prices
from exporter.report.groups import GroupNames
from exporter.report.report import ReportInput
from exporter.report.rows import Amounts, RowKey
from exporter.report.sizes import GpuSize, share_of, sizes_of

MARGIN = 1.2
_LEAST_HOURS = 24.0
_LEAST_SEEN = 0.95
_SHARED = 0.98  # of the device; a container that holds less shares the device with others
# By family: the factor that turns a value into bytes, or into a part of the time. The first family that a row has
# counts. On a shared device, only the measured families are about the holder alone.
MEMORY: Final = {"DCGM_FI_DEV_FB_USED": 2.0**20, "DCGM_FI_DEV_FB_USED_BYTES": 1.0, "pod_gpu_memory_used_bytes": 1.0}
ACTIVITY: Final = {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1.0, "pod_gpu_utilization_ratio": 1.0, "DCGM_FI_DEV_GPU_UTIL": 0.01}
_MEASURED: Final = frozenset({"pod_gpu_memory_used_bytes", "pod_gpu_utilization_ratio"})


RowId = tuple[str, ...]  # a RowKey's first five fields, without the node: DCGM's samples may not name it


class Evidence(NamedTuple):
    """A value from a server, with the query and the moment (ms) that give this value again."""

    value: float
    query: str
    at_ms: int


@dataclass(slots=True)
class RowPeaks:
    """The peaks of a row.

    Attributes:
        evidence: the peaks, by function and family.
        seen: the seconds for which there are samples, by family.
        share: the least part of a GPU that the container held, None if unknown.
        profile: the device's MIG profile, "" for a whole GPU.
        has_several: whether the container held several devices at once.
    """

    evidence: dict[tuple[str, str], Evidence] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    share: float | None = None
    profile: str = ""
    has_several: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The advice for a workload on one model.

    Attributes:
        held: the names of the parts that the workload held.
        refused: the reason why there is no advice; "" if there is.
        refused_for: the same reason without this workload's figures, so that many workloads have the same text.
        size: the part that suffices, None if no smaller part does or there is no advice.
        slower: the part that suffices for the p95 of activity and 20 % more.
        beyond: the GPU-seconds held that `size` would have saved.
        cost: the cost of `beyond`, None without a price.
        peaks: the highest memory in bytes, and the p95 and the highest activity as parts of a whole GPU (0 to 1). Empty
            without advice.
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
    """The reason why there is no advice, in words that fit many workloads, and with this workload's figures.

    `exactly` is "" if the words are the same. Both are "" if there is advice.
    """

    kind: str = ""
    exactly: str = ""


class _DeviceOfWorkload(NamedTuple):
    key: RowKey
    amounts: Amounts
    peaks: RowPeaks
    size: tuple[float, float]  # the device's, see share_of

    @property
    def share(self) -> float:
        return self.peaks.share or self.size[0]

    @property
    def is_shared(self) -> bool:
        return self.share < self.size[0] * _SHARED

    def family(self, of: Iterable[str]) -> str:
        """The first family that the row has and that is about the holder alone; "" for none."""
        for family in of:
            is_own = not self.is_shared or family in _MEASURED
            if is_own and ("max", family) in self.peaks.evidence:
                return family
        return ""


def advise(collected: ReportInput, peaks: Mapping[RowId, RowPeaks], prices: Prices) -> Sequence[Advice]:
    """Advice for each workload and model, or the reason why there is none; the workload that could save most first."""
    names = GroupNames(collected.labels.items())
    devices_of = defaultdict[tuple[str, str], list[_DeviceOfWorkload]](list)
    for key, amounts in collected.grown.items():
        name = names.name_of(key, collected.labels.get(key, {}))
        if amounts.held and name:
            model = collected.facts.models.get(key.uuid, "")
            of_row = peaks.get(key[:5]) or RowPeaks()
            devices_of[name, model].append(_DeviceOfWorkload(key, amounts, of_row, share_of(of_row.profile, model)))
    restarts = collected.facts.restarts
    advices = [_advice(name, model, devices, restarts, prices) for (name, model), devices in devices_of.items()]
    return sorted(advices, key=_most_beyond_first)


def _most_beyond_first(advice: Advice) -> tuple[bool, float, float, str]:
    return bool(advice.refused), -advice.beyond, -advice.amounts.held, advice.name


def _advice(
    name: str, model: str, devices: Sequence[_DeviceOfWorkload], restarts: Mapping[str, int], prices: Prices
) -> Advice:
    """The advice for one workload on one model, or the reason why there is none. `restarts` is by node."""
    amounts = Amounts()
    for device in devices:
        amounts = amounts.plus(device.amounts)
    held = ", ".join(sorted({_held(device) for device in devices}))
    why = _refused(model, devices, restarts)
    if why.kind:
        refused = why.exactly or why.kind
        return Advice(name=name, model=model, held=held, amounts=amounts, refused=refused, refused_for=why.kind)
    memory = _highest("max", MEMORY, devices)
    p95 = _highest("p95", ACTIVITY, devices)
    activity = _highest("max", ACTIVITY, devices)
    largest = max(device.share for device in devices)
    fits = [size for size in sizes_of(model) if size.memory >= memory[0] * MARGIN and size.share < largest * _SHARED]
    size = _first_with(fits, activity[0] * MARGIN)
    beyond = _seconds_beyond(devices, size)
    price = prices.of_model(model)
    return Advice(
        name=name,
        model=model,
        held=held,
        amounts=amounts,
        size=size,
        slower=_first_with(fits, p95[0] * MARGIN),
        beyond=beyond,
        cost=None if price is None else float(price) * beyond / SECONDS_OF_HOUR,
        peaks=(memory, p95, activity),
    )


def _held(device: _DeviceOfWorkload) -> str:
    whole = device.peaks.profile or "a GPU"
    return f"part of {whole}" if device.is_shared else whole


def _first_with(sizes: Iterable[GpuSize], activity: float) -> GpuSize | None:
    return next((size for size in sizes if size.least >= activity), None)


def _seconds_beyond(devices: Iterable[_DeviceOfWorkload], size: GpuSize | None) -> float:
    """The GPU-seconds held that `size` would have saved."""
    share = size.share if size else 1.0
    return sum(device.amounts.held * max(0.0, 1 - share / device.share) for device in devices)


def _highest(function: str, of: Mapping[str, float], devices: Iterable[_DeviceOfWorkload]) -> tuple[float, Evidence]:
    return max(_peak(device, function, of) for device in devices)


def _peak(device: _DeviceOfWorkload, function: str, of: Mapping[str, float]) -> tuple[float, Evidence]:
    """A device's peak in bytes, or as a part of a whole GPU, with its evidence."""
    family = device.family(of)
    evidence = device.peaks.evidence[function, family]
    part_of_gpu = 1.0 if of is MEMORY else device.size[1]
    return evidence.value * of[family] * part_of_gpu, evidence


def _refused(model: str, devices: Sequence[_DeviceOfWorkload], restarts: Mapping[str, int]) -> _NoAdvice:
    """The reason why no size can be advised; empty if a size can. `restarts` is by node."""
    hours = sum(device.amounts.held / device.share for device in devices) / SECONDS_OF_HOUR
    if not sizes_of(model):
        return _NoAdvice(f"what {model or 'an unknown model'} can be cut into is not known")
    if hours < _LEAST_HOURS:
        return _NoAdvice("held for less than a day", f"held for {hours:.1f} hours, which is less than a day")
    nodes_begun_anew = sorted({device.key.place for device in devices} & restarts.keys())
    if nodes_begun_anew:
        nodes = ", ".join(nodes_begun_anew[:3])
        so = "what came before that is not known"
        return _NoAdvice(
            f"the exporter began to count anew: {so}", f"the exporter began to count anew on {nodes}: {so}"
        )
    if any(device.peaks.has_several for device in devices):
        return _NoAdvice("a container held several devices at once, and MIG instances and shares do not work together")
    if any(device.peaks.share is None for device in devices):
        return _NoAdvice("which part of a GPU it held is not known (pod_gpu_allocated_ratio)")
    return _unseen("memory", MEMORY, devices, hours) or _unseen("activity", ACTIVITY, devices, hours) or _NoAdvice()


def _unseen(what: str, of: Mapping[str, float], devices: Sequence[_DeviceOfWorkload], hours: float) -> _NoAdvice | None:
    unmeasured = [device for device in devices if not device.family(of)]
    if unmeasured:
        shared = "it shared a GPU, and " if unmeasured[0].is_shared else ""
        return _NoAdvice(f"{shared}its own {what} was not measured")
    hours_seen = sum(device.peaks.seen.get(device.family(of), 0.0) for device in devices) / SECONDS_OF_HOUR
    if hours_seen >= hours * _LEAST_SEEN:
        return None
    return _NoAdvice(
        f"its {what} is not known for all of the time", f"its {what} is known for {hours_seen:.1f} of {hours:.1f} hours"
    )
