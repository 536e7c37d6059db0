"""What DCGM's fields say of how their GPU is: rules, by the field's row. docs/health.md has them all."""

from collections.abc import Mapping
from typing import NamedTuple

from exporter.model.health import HealthReason


class HealthRule(NamedTuple):
    """It holds where the value is not 0, has one of `bits`, or `grows`."""

    reason: HealthReason
    bits: int = 0
    grows: bool = False


_FREE = "reset the GPU when it is free"
_REPLACE = "have the GPU replaced: ask the vendor of the node"
_AIR = "look at fans, airflow and the room; compare it with the node's other GPUs"
_POWER = "look at the node's power supply and its limits"
_LINK = "look at nvidia-smi nvlink -e and at the switch; if they go on, reset the GPU, and check the link"
_LINKS = HealthRule(HealthReason("nvlink", "degraded", "errors of NVLink within the last hour", _LINK), grows=True)
_REMAPS = HealthReason("row-remap-pending", "degraded", "a row of memory waits to be remapped", _FREE)
_FAILED = HealthReason("row-remap-failed", "failing", "a row of memory could not be remapped", _REPLACE)
RULES: Mapping[str, tuple[HealthRule, ...]] = {
    "DEV_ECC_DBE_VOL_TOTAL": (HealthRule(HealthReason("ecc", "degraded", "uncorrected errors of memory", _FREE)),),
    "DEV_ROW_REMAP_PENDING": (HealthRule(_REMAPS),),
    "DEV_ROW_REMAP_FAILURE": (HealthRule(_FAILED),),
    "DEV_RETIRED_PENDING": (HealthRule(HealthReason("page-pending", "degraded", "a page is to be retired", _FREE)),),
    # CRC errors alone are repaired by replays
    **dict.fromkeys(("DEV_NVLINK_REPLAY_ERROR_TOTAL", "DEV_NVLINK_RECOVERY_ERROR_TOTAL"), (_LINKS,)),
    # nvml.h, nvmlClocksEventReason…; a power cap in software (0x4) is how GPUs work
    "DEV_CLOCKS_EVENT_REASONS": (
        HealthRule(HealthReason("hot", "degraded", "its clocks are lowered for heat", _AIR), 0x20 | 0x40),
        HealthRule(HealthReason("power", "degraded", "its clocks are lowered by the power brake", _POWER), 0x80),
        HealthRule(HealthReason("slowdown", "degraded", "the hardware has halved its clocks, or more", _POWER), 0x8),
    ),
}
