"""The measured use of owners, as values of a device's samples.

Memory adds up: the owners' parts and the rest, for the row without owner, are the sample's value to the last digit,
even if the measurement was made at another time. Utilisation does not add up, since kernels of several owners can run
at the same time. The device's work while kernels run (power, activity of its units) is divided by the time for which
each owner's kernels ran.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from exporter.dcgm.fields import FIELDS
from exporter.dcgm.table import Additive
from exporter.dividing.decimals import Amount, divisible, in_parts, in_proportion, is_amount, read_amount, write_amount
from exporter.model.devices import DeviceKey
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner

if TYPE_CHECKING:
    from exporter.model.measured import Measured

_MIB = 2**20
# bytes of one unit, by family: the JSON field is in MiB
MEMORY = {name.encode(): _MIB // field.per for name, field in FIELDS.items() if field.json == "framebuffer_used"}
# the value of a device that works all the time, by family: the JSON field is in percent
UTILIZATION = {name.encode(): 100 // field.times for name, field in FIELDS.items() if field.json == "gpu_utilization"}
# families of memory that nobody uses
FREE = frozenset(name.encode() for name, field in FIELDS.items() if field.json == "framebuffer_free")
# gauges of the device's work: power and, from profiling, bytes over PCIe and NVLink and the activity of its units
WORK = frozenset(
    name.encode()
    for name, field in FIELDS.items()
    if (field.json and field.name.startswith("PROF_")) or (field.of_gpu and field.additive is Additive.GAUGE)
)
_LEAST_PLACES = 2
_BILLION = 1_000_000_000


def memory_texts(value: bytes, owners_bytes: Sequence[int], unit_bytes: int) -> list[bytes]:
    """The owners' memory and the rest of the device's `value`, at the value's precision.

    A value that is no amount is copied.
    """
    if not is_amount(value):
        return [value] * (len(owners_bytes) + 1)
    whole, places = read_amount(value)
    parts = scale_down([used * 10**places // unit_bytes for used in owners_bytes], max(whole, 0))
    return [write_amount(Amount(units, places)) for units in (*parts, whole - sum(parts))]


def utilization_texts(value: bytes, ratios: Sequence[float], full: int) -> list[bytes]:
    """The owners' utilisation at the precision of the device's `value`. A value that is no amount is copied."""
    if not is_amount(value):
        return [value] * len(ratios)
    # dcgm-exporter 4.9 prints a ratio of 1 without places
    places = max(read_amount(value).places, _LEAST_PLACES if full == 1 else 0)
    return [write_amount(Amount(round(ratio * full * 10**places), places)) for ratio in ratios]


def work_texts(
    value: bytes, ratios: Sequence[float], nobodys: float, granted: Sequence[int] | None = None
) -> list[bytes]:
    """The parts of a device's `value` for its owners and for nobody, at its precision. They add up to it.

    The parts are by utilisation (0 to 1). If no kernels run, owners get parts by what they were granted, equal ones
    without it, and nobody gets 0. A value that is no amount is copied.
    """
    if not is_amount(value):
        return [value] * (len(ratios) + 1)
    amount = divisible(read_amount(value))
    weights = [round(ratio * _BILLION) for ratio in (*ratios, nobodys)]
    if any(weights):
        parts = in_proportion(amount, weights)
    else:
        of_owners = in_proportion(amount, granted) if granted else in_parts(amount, len(ratios))
        parts = [*of_owners, Amount(0, amount.places)]
    return [write_amount(part) for part in parts]


def scale_down(parts: Sequence[int], total: int | None) -> list[int]:
    """The parts, made smaller in proportion if together they are more than the total."""
    together = sum(parts)
    if total is None or together <= total:
        return list(parts)
    borders = (before * total // together for before in accumulate(parts, initial=0))
    return [end - begin for begin, end in pairwise(borders)]


def _nobodys_sm_ratios(measured: "Measured") -> Mapping[DeviceKey, float]:
    ratios = {device: 0.0 for device, _ in measured.uses}
    for device in ratios.keys() & measured.nobodys.keys():
        ratio = measured.nobodys[device].sm_ratio
        if ratio is None:
            del ratios[device]
        else:
            ratios[device] = ratio
    return ratios


# A device and one of its owners.
Share = tuple[DeviceKey, Owner]


class MeasuredShares:
    """The measured use of owners, for rows: by device and owner, as far as it is known.

    `nobodys_sm_ratios` is the part of the time (0 to 1) in which kernels of nobody's processes ran, by device; 0
    without such processes. `sm_ns` is as in `Measured`. Rows read these values while a page is written. `followed_by`
    changes the values in place while the owners are the same, so that nobody need make the rows again.
    """

    def __init__(self, measured: "Measured | None" = None) -> None:
        self.memory_bytes: Mapping[Share, int] = {}
        self.sm_ratios: Mapping[Share, float] = {}
        self.nobodys_sm_ratios: Mapping[DeviceKey, float] = {}
        self.sm_ns: Mapping[DeviceKey, Mapping[Owner | None, int]] = NOTHING
        if measured is not None:
            uses = measured.uses.items()
            self.memory_bytes = {share: use.memory_bytes for share, use in uses if use.memory_bytes is not None}
            self.sm_ratios = {share: use.sm_ratio for share, use in uses if use.sm_ratio is not None}
            self.nobodys_sm_ratios = _nobodys_sm_ratios(measured)
            self.sm_ns = measured.sm_ns

    def __bool__(self) -> bool:
        return bool(self.memory_bytes or self.sm_ratios)

    def followed_by(self, measured: "Measured | None") -> "MeasuredShares":
        """The next measurement: the same object with other values, or another object."""
        now = MeasuredShares(measured)
        if (
            now.memory_bytes.keys() != self.memory_bytes.keys()
            or now.sm_ratios.keys() != self.sm_ratios.keys()
            or now.nobodys_sm_ratios.keys() != self.nobodys_sm_ratios.keys()
        ):
            return now
        vars(self).update(vars(now))
        return self
