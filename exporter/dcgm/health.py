"""What DCGM's fields say of how their GPU is: a rule each, which stands in the field's row. docs/health.md has them."""

from typing import NamedTuple

from exporter.model.health import HealthReason, Verdict


class HealthRule(NamedTuple):
    """It holds where the value is not 0, has one of `bits`, or `grows` by so much. `source` is where it is from."""

    reason: HealthReason
    source: str
    bits: int = 0
    grows: float = 0.0


def _rule(code: str, verdict: Verdict, text: str, remedy: str, source: str, bits: int = 0) -> HealthRule:
    return HealthRule(HealthReason(code=code, verdict=verdict, text=text, remedy=remedy), source, bits)


_WHEN_FREE = "reset the GPU when it is free"
_ROWS, _CLOCKS = "NVIDIA's GPU memory error management", "nvml.h, nvmlClocksEventReason…"
UNCORRECTED = _rule(
    "ecc",
    "degraded",
    "it has had uncorrected errors of memory since the driver was loaded",
    _WHEN_FREE,
    "DCGM's health watch of memory",
)
REMAP_PENDING = _rule("row-remap-pending", "degraded", "a row of memory waits to be remapped", _WHEN_FREE, _ROWS)
REMAP_FAILED = _rule(
    "row-remap-failed",
    "failing",
    "a row of memory could not be remapped",
    "have the GPU replaced: ask the vendor of the node",
    _ROWS,
)
PAGE_PENDING = _rule("page-pending", "degraded", "a page of memory waits to be retired", _WHEN_FREE, _ROWS)
# CRC errors alone are repaired by replays
LINKS = _rule(
    "nvlink",
    "degraded",
    "errors of NVLink within the last hour",
    "look at nvidia-smi nvlink -e and at the switch; if they go on, reset the GPU, and check the link",
    "DCGM's health watch of NVLink",
)._replace(grows=1.0)
# a power cap in software (0x4) is how GPUs work
LOWERED_CLOCKS = (
    _rule(
        "hot",
        "degraded",
        "its clocks are lowered for heat",
        "look at fans, airflow and the room; compare it with the node's other GPUs",
        _CLOCKS,
        bits=0x20 | 0x40,
    ),
    _rule(
        "power",
        "degraded",
        "its clocks are lowered by the power brake",
        "look at the node's power supply and its limits",
        _CLOCKS,
        bits=0x80,
    ),
    _rule(
        "slowdown",
        "degraded",
        "the hardware has lowered its clocks by half or more",
        "look at its temperature and its power supply",
        _CLOCKS,
        bits=0x8,
    ),
)
