"""What owners are measured to use, as the values of a device's samples: their memory and their utilisation.

Memory adds up: the owners' parts and what is left of the sample's value, for the row without owner, are the sample's
value to the last digit, even where the measurement is of another moment. Utilisation does not: kernels of several
owners run at a time.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType

from exporter.accounting.decimals import Amount, is_amount, read_amount, write_amount
from exporter.accounting.fields import FIELDS

_MIB = 2**20
# bytes of one unit, by family: the JSON field is in MiB
MEMORY: Mapping[bytes, int] = MappingProxyType(
    {name.encode(): _MIB // field.per for name, field in FIELDS.items() if field.json == "framebuffer_used"}
)
# what a sample shows of a device that works all the time, by family: the JSON field is in percent
UTILIZATION: Mapping[bytes, int] = MappingProxyType(
    {name.encode(): 100 // field.times for name, field in FIELDS.items() if field.json == "gpu_utilization"}
)


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
    places = read_amount(value).places
    return [write_amount(Amount(round(ratio * full * 10**places), places)) for ratio in ratios]


def scale_down(parts: Sequence[int], total: int | None) -> list[int]:
    """Parts that add up to no more than the total, in proportion; what exceeded it adds up to it exactly."""
    together = sum(parts)
    if total is None or together <= total:
        return list(parts)
    borders = (before * total // together for before in accumulate(parts, initial=0))
    return [end - begin for begin, end in pairwise(borders)]
