"""Whether the exporter's samples are what nvidia-smi, the loads and arithmetic say. Pure: series in, rows out.

A series is a list of (time in seconds since 1970, value), in the order of time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Series = Sequence[tuple[float, float]]
Verdict = Literal["ok", "fails", "not judged"]
MIB = 1024**2
# Both are read once a second, at moments of their own: the neighbours of a sample are at most so far away.
NEAR_SECONDS = 1.6
# Of eight GPUs, or without the driver's persistence mode, nvidia-smi takes seconds: then these are still neighbours.
FAR_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A line of the table: what is compared, at its worst pair; `pairs` is how often."""

    what: str
    ours: str
    theirs: str
    difference: str
    allowed: str
    verdict: Verdict
    pairs: int = 1
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowed:
    """How far a sample may lie outside of what nvidia-smi said just before and after it.

    Attributes:
        absolute: in the family's unit.
        relative: a part of nvidia-smi's value; the larger of both counts.
        share: the part of the pairs that has to fit.
        is_judged: false for what is only shown.
        why: the reason.
    """

    absolute: float = 0.0
    relative: float = 0.0
    share: float = 1.0
    is_judged: bool = True
    why: str

    def of(self, theirs: float) -> float:
        """The difference that is allowed from this value."""
        return max(self.absolute, self.relative * abs(theirs))

    def __str__(self) -> str:
        parts = [f"{self.absolute:g}"] if self.absolute or not self.relative else []
        if self.relative:
            parts.append(f"{self.relative:.0%}")
        most = " or ".join(parts)
        return most if self.share == 1 else f"{most}, in {self.share:.0%} of pairs"


_SAME = Allowed(why="a fact of the device, or a counter, which stands between its two neighbours")
_SIZE = Allowed(absolute=1, why="whole MiB: the exporter rounds down, as DCGM does, nvidia-smi to the nearest")
# nvidia-smi's own reading is up to a second older or newer, and the driver's sampling period is 1/6 s to 1 s (nvml.h)
_UTILISATION = Allowed(absolute=10, share=0.9, why="the driver samples it over 1/6 s to 1 s")
ALLOWED: Mapping[str, Allowed] = {
    "DCGM_FI_DEV_GPU_TEMP": Allowed(absolute=2, why="whole degrees, which move by one or two a second"),
    "DCGM_FI_DEV_MEMORY_TEMP": Allowed(absolute=2, why="whole degrees, which move by one or two a second"),
    "DCGM_FI_DEV_POWER_USAGE": Allowed(
        absolute=5, relative=0.05, share=0.95, why="a mean of a second; nvml.h: accurate to 5 W (5 % from Ampere on)"
    ),
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": Allowed(absolute=0.01, why="nvidia-smi writes hundredths"),
    "DCGM_FI_DEV_SM_CLOCK": Allowed(absolute=45, share=0.95, why="steps of 15 MHz, some of which may lie between"),
    "DCGM_FI_DEV_MEM_CLOCK": Allowed(absolute=0, share=0.95, why="a few steps, of which one may lie between"),
    "DCGM_FI_DEV_FB_TOTAL": _SIZE,
    "DCGM_FI_DEV_FB_USED": Allowed(absolute=2, share=0.95, why="whole MiB; a load may allocate between"),
    "DCGM_FI_DEV_FB_FREE": Allowed(absolute=2, share=0.95, why="whole MiB; a load may allocate between"),
    "DCGM_FI_DEV_FB_RESERVED": _SIZE,
    "DCGM_FI_DEV_GPU_UTIL": _UTILISATION,
    "DCGM_FI_DEV_MEM_COPY_UTIL": _UTILISATION,
    "DCGM_FI_DEV_ENC_UTIL": _UTILISATION,
    "DCGM_FI_DEV_DEC_UTIL": _UTILISATION,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Allowed(share=0.8, why="a set of bits, which may change from second to second"),
    # DCGM's field and NVML's counter of events are not the same by their documentation: shown, to learn from
    "DCGM_FI_DEV_POWER_VIOLATION": Allowed(is_judged=False, why="two counters of the driver, perhaps not the same"),
    "DCGM_FI_DEV_SYNC_BOOST_VIOLATION": Allowed(is_judged=False, why="two counters of the driver"),
    "DCGM_FI_DEV_PCIE_LINK_GEN": Allowed(share=0.9, why="an idle link falls back; the asking itself may wake it"),
}


def compared(family: str, ours: Series, theirs: Series) -> Row:
    """A family of one GPU beside nvidia-smi. Each sample may be anything between its neighbours there."""
    allowed = ALLOWED.get(family, _SAME)
    pairs = [pair for at, value in ours if (pair := _pair(at, value, theirs)) is not None]
    if not pairs:
        return _unpaired(family, ours, theirs)
    misses = [(pair, excess) for pair in pairs if (excess := pair[2] - allowed.of(pair[1])) > _TINY]
    (ours_then, theirs_then, difference), _ = max(
        misses or [(pair, pair[2]) for pair in pairs], key=lambda scored: scored[1]
    )
    fits = len(misses) <= (1 - allowed.share) * len(pairs)
    return Row(
        what=family,
        ours=f"{ours_then:g}",
        theirs=f"{theirs_then:g}",
        difference=f"{difference:.4g}" + (f" ({len(misses)} pairs)" if misses else ""),
        allowed=str(allowed) if allowed.is_judged else "",
        verdict="not judged" if not allowed.is_judged else "ok" if fits else "fails",
        pairs=len(pairs),
        note="" if fits and allowed.is_judged else allowed.why,
    )


_TINY = 1e-9  # of floating point


def _pair(at: float, value: float, theirs: Series) -> tuple[float, float, float] | None:
    """A sample, the nearest of its neighbours' values, and how far it is outside of all; None without a neighbour."""
    near = [their_value for their_at, their_value in theirs if abs(their_at - at) <= NEAR_SECONDS]
    if not near:
        before = [their_value for their_at, their_value in theirs if at - FAR_SECONDS <= their_at <= at]
        after = [their_value for their_at, their_value in theirs if at <= their_at <= at + FAR_SECONDS]
        near = [*before[-1:], *after[:1]]
    if not near:
        return None
    lowest = min(near)
    highest = max(near)
    outside = max(lowest - value, value - highest, 0.0)
    nearest = min(near, key=lambda their_value: abs(their_value - value))
    return value, nearest, outside


def _unpaired(family: str, ours: Series, theirs: Series) -> Row:
    if ours and theirs:
        verdict: Verdict = "fails"
        note = "no two readings are close in time"
    elif theirs:
        verdict = "fails"
        note = "nvidia-smi has it, the exporter lacks it"
    else:
        verdict = "not judged"
        note = "nvidia-smi says N/A"
    shown = [f"{series[-1][1]:g}" if series else "" for series in (ours, theirs)]
    return Row(
        what=family, ours=shown[0], theirs=shown[1], difference="", allowed="", verdict=verdict, pairs=0, note=note
    )


def same_text(what: str, ours: Iterable[str], theirs: Iterable[str]) -> Row:
    """A label of a GPU: all texts that were seen, on both sides."""
    our_texts = sorted(set(ours))
    their_texts = sorted(set(theirs))
    is_same = our_texts == their_texts
    return Row(
        what=what,
        ours=" ".join(our_texts),
        theirs=" ".join(their_texts),
        difference="" if is_same else "another text",
        allowed="the same text",
        verdict="ok" if is_same else "fails" if their_texts else "not judged",
    )


def integral(series: Series) -> float:
    """The integral over the time of the series, by trapezoids."""
    return sum((after - before) * (low + high) / 2 for (before, low), (after, high) in pairwise(series))


def sum_of_rates(series: Series) -> float:
    """The sum of what rates stand for that are each the mean of the time since the one before, as GPM's."""
    return sum((after - before) * rate for (before, _), (after, rate) in pairwise(series))


# What a device's own counter may differ from samples once a second: the aim
ENERGY_TOLERANCE = 0.02
_ENERGY_SECONDS = 20.0


def energy(counter: Series, power: Series) -> Row:
    """The energy counter (millijoules) beside the integral of power (watts) over the same time."""
    what = "energy counter beside the integral of power"
    if len(counter) < 2 or counter[-1][0] - counter[0][0] < _ENERGY_SECONDS:
        return _left_out(what, f"fewer than {_ENERGY_SECONDS:g} s of samples")
    counted = (counter[-1][1] - counter[0][1]) / 1000
    summed = integral(power)
    if summed <= 0:
        return _left_out(what, "no power was read")
    ratio = abs(counted - summed) / summed
    return Row(
        what=what,
        ours=f"{counted:.0f} J",
        theirs=f"{summed:.0f} J",
        difference=f"{ratio:.1%}",
        allowed=f"{ENERGY_TOLERANCE:.0%}",
        verdict="ok" if ratio <= ENERGY_TOLERANCE else "fails",
        pairs=len(power),
    )


def _left_out(what: str, why: str) -> Row:
    return Row(what=what, ours="", theirs="", difference="", allowed="", verdict="not judged", pairs=0, note=why)


def left_out(what: str, why: str) -> Row:
    """A line for what could not be judged."""
    return _left_out(what, why)


def mean_between(what: str, series: Series, least: float, most: float, *, why: str = "") -> Row:
    """The mean of a series, beside the bounds that the load gives it."""
    if not series:
        return _left_out(what, "no sample")
    mean = sum(value for _, value in series) / len(series)
    return Row(
        what=what,
        ours=f"{mean:.4g}",
        theirs=why,
        difference="",
        allowed=f"{least:g} to {most:g}",
        verdict="ok" if least <= mean <= most else "fails",
        pairs=len(series),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfProcess:
    """A process of a load: bytes that it allocated, and that the exporter and nvidia-smi say; None for nothing."""

    name: str
    pid: int
    allocated: int
    ours: int | None
    theirs: int | None


# A context, cuBLAS' workspace and the allocator's rounding, on drivers from 535 to 595
CONTEXT_BYTES = 1536 * MIB


def memory_of(process: OfProcess) -> list[Row]:
    """Memory of a process beside what it knows of itself, and beside nvidia-smi.

    A container may see no process at all, or by other pids: then nvidia-smi lists it as little as the exporter does.
    """
    what = f"memory of {process.name}"
    if process.ours is None and process.theirs is None:
        return [_left_out(what, f"the driver lists no pid {process.pid} here: another PID namespace")]
    if process.ours is None:
        return [
            Row(
                what=what,
                ours="",
                theirs=_mib(process.theirs or 0),
                difference="",
                allowed="",
                verdict="fails",
                note=f"nvidia-smi lists pid {process.pid}, the exporter does not",
            )
        ]
    more = process.ours - process.allocated
    rows = [
        Row(
            what=f"{what} beside its own word",
            ours=_mib(process.ours),
            theirs=_mib(process.allocated),
            difference=_mib(more),
            allowed=f"0 to {_mib(CONTEXT_BYTES)} more (the CUDA context)",
            verdict="ok" if 0 <= more <= CONTEXT_BYTES else "fails",
        )
    ]
    if process.theirs is not None:
        apart = abs(process.ours - process.theirs)
        rows.append(
            Row(
                what=f"{what} beside nvidia-smi",
                ours=_mib(process.ours),
                theirs=_mib(process.theirs),
                difference=_mib(apart),
                allowed=_mib(2 * MIB),
                verdict="ok" if apart <= 2 * MIB else "fails",
            )
        )
    return rows


def _mib(size: int) -> str:
    return f"{size / MIB:.0f} MiB"


# Headers of packets: 12 to 16 bytes of header and framing on each 128 or 256 bytes of payload, and the answers to reads
LEAST_PCIE = 0.95
MOST_PCIE = 1.3


def copied(what: str, rate: Series, copied_bytes: Series) -> Row:
    """Bytes over PCIe by GPM's rate (bytes/s), beside the growth of what the load copied, over the same time."""
    if len(rate) < 3 or len(copied_bytes) < 2:
        return _left_out(what, "too few samples")
    counted = sum_of_rates(rate)
    did = value_at(copied_bytes, rate[-1][0]) - value_at(copied_bytes, rate[0][0])
    if did <= 0:
        return _left_out(what, "the load copied nothing meanwhile")
    ratio = counted / did
    return Row(
        what=what,
        ours=f"{counted / MIB:.0f} MiB",
        theirs=f"{did / MIB:.0f} MiB",
        difference=f"{ratio - 1:+.1%}",
        allowed=f"{LEAST_PCIE - 1:+.0%} to {MOST_PCIE - 1:+.0%}",
        verdict="ok" if LEAST_PCIE <= ratio <= MOST_PCIE else "fails",
        pairs=len(rate),
    )


def value_at(series: Series, at: float) -> float:
    """The value of a growing series at a time, on the line between its neighbours; beyond its ends, the end's."""
    if at <= series[0][0]:
        return series[0][1]
    for (before, low), (after, high) in pairwise(series):
        if at <= after:
            return low + (high - low) * (at - before) / (after - before)
    return series[-1][1]


def within(series: Series, began: float, ended: float) -> Series:
    """The part of a series in a time."""
    return [(at, value) for at, value in series if began <= at <= ended]


def owners(what: str, seen: Iterable[frozenset[str]], expected: frozenset[str]) -> Row:
    """The pods that rows of a GPU named, moment by moment, beside those that hold it."""
    moments = list(seen)
    if not moments:
        return _left_out(what, "no moment of it was seen")
    wrong = [pods for pods in moments if pods != expected]
    shown = wrong[0] if wrong else moments[-1]
    return Row(
        what=what,
        ours=", ".join(sorted(shown)) or "nobody",
        theirs=", ".join(sorted(expected)) or "nobody",
        difference=f"{len(wrong)} moments" if wrong else "",
        allowed="the same pods",
        verdict="fails" if wrong else "ok",
        pairs=len(moments),
    )


def equal(what: str, ours: object, theirs: object, note: str = "") -> Row:
    """Two values that have to be the same."""
    return Row(
        what=what,
        ours=str(ours),
        theirs=str(theirs),
        difference="" if ours == theirs else "differs",
        allowed="0",
        verdict="ok" if ours == theirs else "fails",
        note=note,
    )


def fact(what: str, ours: str, note: str = "") -> Row:
    """A figure that is only told."""
    return Row(what=what, ours=ours, theirs="", difference="", allowed="", verdict="not judged", note=note)
