"""DCGM_FI_DEV_GPU_UTIL_RATIO, one name with two units: this module settles the unit as a page comes in. Pure.

In DCGM 4.6 it is a second name of field 203, in whole numbers of percent. Since 4.7 it is a field of its own, 0 to 1.
The page's other names tell 4.7; where they do not, all values of the family together do, by their form. A page whose
values are in percent goes on under the field's other name, DCGM_FI_DEV_GPU_UTIL, which has been in percent ever since.
FB_USED_RATIO is from 0 to 1 in both, as FB_USED_PERCENT was (dcgm_fields.h).
"""

from enum import Enum, auto

from exporter.dcgm.table import Unit
from exporter.dcgm.vendors import MOST
from exporter.errors import Trouble

RATIO = b"DCGM_FI_DEV_GPU_UTIL_RATIO"
PERCENT = b"DCGM_FI_DEV_GPU_UTIL"
# fields that came with DCGM 4.7: a page with such a field has its ratios from 0 to 1
SINCE_4_7 = (
    b"DCGM_FI_DEV_FB_USED_BYTES",
    b"DCGM_FI_DEV_FB_CAPACITY_BYTES",
    b"DCGM_FI_DEV_FB_FREE_BYTES",
    b"DCGM_FI_DEV_FB_RESERVED_BYTES",
    b"DCGM_FI_DEV_MEMORY_UTIL_RATIO",
    b"DCGM_FI_DEV_ENC_UTIL_RATIO",
    b"DCGM_FI_DEV_DEC_UTIL_RATIO",
    b"DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_THERMAL_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_SYNC_BOOST_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_LIMIT_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_LOW_UTIL_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_RELIABILITY_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_APP_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_GPU_BASE_THROTTLE_SECONDS_TOTAL",
    b"DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
)
_START = b"\n" + RATIO + b"{"
_MOST = MOST[Unit.RATIO]
_MOST_PERCENT = 100
_UNIT = Trouble(
    "unit",
    f"{RATIO.decode()} is in percent with DCGM 4.6 and from 0 to 1 since 4.7, and the page does not show which: the"
    " values that depend on it are left out",
    f"have dcgm-exporter measure {PERCENT.decode()} (up to 4.8), or all of 4.9's own counters",
)


class Shown(Enum):
    """What a page shows of the unit."""

    PERCENT = auto()
    RATIO = auto()
    NOTHING = auto()  # no value but 0 and 1
    BOTH = auto()  # it contradicts itself


class UtilizationUnit:
    """Settles the unit of one source's pages.

    A unit that a page has shown holds until another page shows the other unit, or contradicts itself.
    """

    def __init__(self) -> None:
        self._unit = Shown.NOTHING

    def settle(self, body: bytes, odd: list[Trouble]) -> bytes:
        """The page with names that tell the unit.

        If the unit is not known, a value that depends on it becomes NaN, and `odd` gets a trouble. A page without the
        family stays the same object.
        """
        if RATIO not in body:
            return body
        shown = unit_shown(body)
        if shown is not Shown.NOTHING:
            self._unit = shown
        if self._unit is Shown.PERCENT:
            return body.replace(RATIO, PERCENT)
        most = _MOST if self._unit is Shown.RATIO else 0.0
        first, samples = _samples(body)
        values = [_value(sample) for sample in samples]
        if all(value <= most for value in values):
            return body
        odd.append(_UNIT)
        settled = [
            _without_value(sample) if value > most else sample for sample, value in zip(samples, values, strict=True)
        ]
        return _START.join((first, *settled))[1:]


def unit_shown(body: bytes) -> Shown:
    """What a page shows of the unit of RATIO, by its families' names, else by the form of all values together.

    DCGM 4.6's field is a whole number of percent (DCGM_FT_INT64), that of 4.7 a fraction (DCGM_FT_DOUBLE).
    """
    if any(name in body for name in SINCE_4_7):
        return Shown.RATIO
    values = [_value(sample) for sample in _samples(body)[1]]
    has_fractions = any(value % 1 for value in values)
    is_above_all = any(value > _MOST for value in values)
    if has_fractions and is_above_all:
        return Shown.BOTH
    if has_fractions:
        return Shown.RATIO
    return Shown.PERCENT if is_above_all else Shown.NOTHING


def _samples(body: bytes) -> tuple[bytes, list[bytes]]:
    """The text before the first sample of RATIO, and the text behind the name of each."""
    first, *samples = (b"\n" + body).split(_START)
    return first, samples


def _value(sample: bytes) -> float:
    """The value of a sample, from the text after its name; 0, which has no unit, if the text has no use of a GPU."""
    line = sample.partition(b"\n")[0]
    words = line.rpartition(b"}")[2].split()
    try:
        value = float(words[0]) if words else 0.0
    except ValueError:
        return 0.0
    # DCGM's values for "not supported" are far above
    return value if 0 <= value <= _MOST_PERCENT else 0.0


def _without_value(sample: bytes) -> bytes:
    line, newline, rest = sample.partition(b"\n")
    labels, brace, after = line.rpartition(b"}")
    timestamp = after.split()[1:]
    return b"%b%b %b%b%b" % (labels, brace, b" ".join((b"NaN", *timestamp)), newline, rest)
