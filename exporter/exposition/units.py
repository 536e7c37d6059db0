"""DCGM_FI_DEV_GPU_UTIL_RATIO, one name with two units: this module settles the unit as a page comes in. Pure.

In DCGM 4.6 it is a second name of field 203, in percent. Since 4.7 it is a field of its own, from 0 to 1. So a page
whose values are in percent goes on under the field's other name, DCGM_FI_DEV_GPU_UTIL, which has been in percent ever
since. FB_USED_RATIO is from 0 to 1 in both, as FB_USED_PERCENT was (dcgm_fields.h).
"""

from collections.abc import Sequence

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


class UtilizationUnit:
    """Settles the unit of one source's pages.

    A unit that a page has shown holds until another page shows the other unit.
    """

    def __init__(self) -> None:
        self._is_percent: bool | None = None

    def settle(self, body: bytes, odd: list[Trouble]) -> bytes:
        """The page with names that tell the unit.

        If the unit is not known, a value that depends on it becomes NaN, and `odd` gets a trouble. A page without the
        family stays the same object.
        """
        if RATIO not in body:
            return body
        first, *samples = (b"\n" + body).split(_START)
        values = [_value(sample) for sample in samples]
        self._learn(values, since_4_7=any(name in body for name in SINCE_4_7))
        if self._is_percent:
            return body.replace(RATIO, PERCENT)
        most = 0.0 if self._is_percent is None else _MOST
        if all(value <= most for value in values):
            return body
        odd.append(_UNIT)
        settled = [
            _without_value(sample) if value > most else sample for sample, value in zip(samples, values, strict=True)
        ]
        return _START.join((first, *settled))[1:]

    def _learn(self, values: Sequence[float], *, since_4_7: bool) -> None:
        if since_4_7:
            self._is_percent = False
        elif any(value > _MOST for value in values):
            self._is_percent = True
        elif any(value % 1 for value in values):
            self._is_percent = False  # field 203 has whole numbers


def _value(sample: bytes) -> float:
    """The value of a sample, from the text after its name; 0, which has no unit, if the text has no use of a GPU."""
    line = sample.partition(b"\n")[0]
    words = line.rpartition(b"}")[2].split(maxsplit=1)
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
