"""What owners are measured to use, as the values of a device's samples.

Memory adds up: the owners' parts and what is left of the sample's value, for the row without owner, are the sample's
value to the last digit, even where the measurement is of another moment. Utilisation does not: kernels of several
owners run at a time. What the device does while kernels run (power, its units' activity) belongs to those whose kernels
they are, and for so long as they ran.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType

from exporter.accounting.decimals import Amount, divisible, in_parts, is_amount, read_amount, write_amount
from exporter.accounting.fields import FIELDS, Additive
from exporter.accounting.instances import apportion

_MIB = 2**20
# bytes of one unit, by family: the JSON field is in MiB
MEMORY: Mapping[bytes, int] = MappingProxyType(
    {name.encode(): _MIB // field.per for name, field in FIELDS.items() if field.json == "framebuffer_used"}
)
# what a sample shows of a device that works all the time, by family: the JSON field is in percent
UTILIZATION: Mapping[bytes, int] = MappingProxyType(
    {name.encode(): 100 // field.times for name, field in FIELDS.items() if field.json == "gpu_utilization"}
)
# memory that nobody uses
FREE = frozenset(name.encode() for name, field in FIELDS.items() if field.json == "framebuffer_free")
_ACTIVITIES = frozenset(
    {
        "graphics_engine_active",
        "sm_active",
        "sm_occupancy",
        "tensor_active",
        "dram_active",
        "int_pipe_active",
        "fp16_pipe_active",
        "fp32_pipe_active",
        "fp64_pipe_active",
    }
)
# gauges of what the device does: power, bytes over PCIe and NVLink, how active its units are
WORK = frozenset(
    name.encode()
    for name, field in FIELDS.items()
    if field.json in _ACTIVITIES or (field.of_gpu and field.additive is Additive.GAUGE)
)
_LEAST_PLACES = 2
_BILLION = 1_000_000_000


def memory_texts(value: bytes, owners_bytes: Sequence[int], unit_bytes: int) -> list[bytes]:
    """The owners' memory and the rest of the device's `value`, each at its precision. What is no amount is copied."""
    if not is_amount(value):
        return [value] * (len(owners_bytes) + 1)
    whole, places = read_amount(value)
    parts = scale_down([used * 10**places // unit_bytes for used in owners_bytes], max(whole, 0))
    return [write_amount(Amount(units, places)) for units in (*parts, whole - sum(parts))]


def utilization_texts(value: bytes, ratios: Sequence[float], full: int) -> list[bytes]:
    """The owners' utilisation at the precision of the device's `value`. What is no amount is copied."""
    if not is_amount(value):
        return [value] * len(ratios)
    # 4.9 prints a ratio of 1 without places
    places = max(read_amount(value).places, _LEAST_PLACES if full == 1 else 0)
    return [write_amount(Amount(round(ratio * full * 10**places), places)) for ratio in ratios]


def work_texts(value: bytes, ratios: Sequence[float], nobodys: float) -> list[bytes]:
    """A device's `value` in parts of its owners and of nobody, which add up to it, at its own precision.

    The parts are by utilisation (0 to 1). Where no kernels run, all owners have the same and nobody has nothing. What
    is no amount is copied.
    """
    if not is_amount(value):
        return [value] * (len(ratios) + 1)
    amount = divisible(read_amount(value))
    weights = [round(ratio * _BILLION) for ratio in (*ratios, nobodys)]
    if any(weights):
        sign = -1 if amount.units < 0 else 1
        parts = [Amount(sign * part, amount.places) for part in apportion(abs(amount.units), weights)]
    else:
        parts = [*in_parts(amount, len(ratios)), Amount(0, amount.places)]
    return [write_amount(part) for part in parts]


def scale_down(parts: Sequence[int], total: int | None) -> list[int]:
    """Parts that add up to no more than the total, in proportion; what exceeded it adds up to it exactly."""
    together = sum(parts)
    if total is None or together <= total:
        return list(parts)
    borders = (before * total // together for before in accumulate(parts, initial=0))
    return [end - begin for begin, end in pairwise(borders)]
