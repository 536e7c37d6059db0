"""DCGM's own verdict on a GPU: the findings of its health watches, from their rows on dcgm-exporter's page.

The family is DCGM_EXP_GPU_HEALTH_STATUS (dcgm-exporter from 4.0.0 on, if its file of counters names it). It has a row
for each GPU and watch, with the labels health_watch (MEM, PCIE, …; ALL is the GPU as a whole, from 4.8.2 on) and
health_error_code (DCGM_FR_…). A value is one of dcgm_structs.h's dcgmHealthWatchResults_t: 0 pass, 10 warn, 20 fail.

health_errors.json has the errors that a watch of a GPU may find (DCGM 4.6, modules/health/DcgmHealthWatch.cpp): by name
their numbers in dcgm_errors.h, their meaning, and what to do.

Tests: tests/ownership/test_dcgm_health.py.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pkgutil import get_data
from typing import NamedTuple

from exporter.model.health import MOST_REASONS, OF_DCGM, HealthReason, Verdict, rank
from exporter.wording import one_line

FAMILY = "DCGM_EXP_GPU_HEALTH_STATUS"
WARN = 10
FAIL = 20
WHOLE_GPU = "ALL"
WATCHES: Mapping[str, str] = {
    "PCIE": "PCIe",
    "NVLINK": "NVLink",
    "PMU": "the power management unit",
    "MCU": "the microcontroller",
    "MEM": "memory",
    "SM": "the multiprocessors",
    "INFOROM": "the InfoROM",
    "THERMAL": "temperature",
    "POWER": "power",
    "DRIVER": "the driver",
    WHOLE_GPU: "the whole GPU",
}
"""The part that each watch looks at, by the watch's label."""
_PREFIX = "DCGM_FR_"
_MOST_SHOWN = 60  # characters of a label that a page may choose
# dcgm-exporter's text for an error for which its go-dcgm has no name
_UNNAMED = re.compile(r"UNKNOWN\((\d{1,4})\)")
# dcgm-exporter still writes DCGM's earlier names of clocks events
_OLDER_NAME = "CLOCK_THROTTLE_"
_NAME = "CLOCKS_EVENT_"
_REMEDIES: Mapping[str, str] = {
    "failing": "look at the logs of DCGM and of the kernel; drain the node, reset the GPU and run dcgmi diag -r 3; if"
    " it comes back, ask the vendor of the node",
    "degraded": "look at the logs of DCGM and of the kernel; watch it, and reset the GPU when it is free",
}


# DCGM fails at one replay or recovery within a minute, and on Hopper at any that the GPU had since its reset, or a CRC
# error (MonitorNVLinkErrorFields of DcgmHealthWatch.cpp): a link survives those. Others do not act on it, either
# (eks-node-monitoring-agent, NVSentinel).
_SURVIVED = "NVLINK_ERROR_CRITICAL"


class HealthError(NamedTuple):
    """An error of dcgm_errors.h: its number, its meaning, and what to do."""

    number: int
    text: str
    remedy: str


HEALTH_ERRORS: Mapping[str, HealthError] = {
    name: HealthError(*error) for name, error in json.loads(get_data(__package__, "health_errors.json") or b"").items()
}
"""The errors by their names without DCGM_FR_."""
_NAME_OF: Mapping[int, str] = {error.number: name for name, error in HEALTH_ERRORS.items()}


class WatchRow(NamedTuple):
    """A GPU's row of one watch: the value, and the label health_error_code."""

    value: float
    error: str


def findings(rows: Mapping[str, WatchRow]) -> Sequence[HealthReason]:
    """The findings of a GPU's watches, from their rows by the label health_watch.

    The worst eight at most, the worst first. If the watch of a part also finds an incident of the whole GPU, only that
    watch tells it.
    """
    of_parts = [row for watch, row in rows.items() if watch != WHOLE_GPU]
    reasons: list[HealthReason] = []
    for watch, row in rows.items():
        if row.value < WARN:
            continue
        by_parts = [part.value for part in of_parts if part.error == row.error]
        if watch != WHOLE_GPU or row.value > max(by_parts, default=0):
            reasons.append(_reason(watch, row))
    return sorted(reasons, key=rank)[:MOST_REASONS]


def _reason(watch: str, row: WatchRow) -> HealthReason:
    is_failure = row.value >= FAIL
    verdict: Verdict = "failing" if is_failure else "degraded"
    text, code, remedy = _meaning(row.error, verdict)
    if code == code_of(_SURVIVED):
        verdict = "degraded"
    about = WATCHES.get(watch) or f"its watch {_shown(watch)}"
    does = "finds a failure of" if is_failure else "warns of"
    return HealthReason(code, f"DCGM {does} {about}: {text}", remedy, verdict)


def _meaning(label: str, verdict: Verdict) -> tuple[str, str, str]:
    """An error's text with its name, the code of the reason, and what to do."""
    name = label.removeprefix(_PREFIX).replace(_OLDER_NAME, _NAME)
    remedy = _REMEDIES[verdict]
    number = _UNNAMED.fullmatch(name)
    if number is not None:
        name = _NAME_OF.get(int(number[1]), name)
    if name in HEALTH_ERRORS:
        error = HEALTH_ERRORS[name]
        return f"{error.text} ({_PREFIX}{name})", code_of(name), error.remedy
    if number is not None:
        return f"error {number[1]} of DCGM (dcgm_errors.h)", OF_DCGM, remedy
    words = _shown(name).replace("_", " ").lower()
    return f"{words} ({_shown(label)})" if words else "an error without a name", OF_DCGM, remedy


def code_of(name: str) -> str:
    """The reason's code for an error in HEALTH_ERRORS; for any other error it is OF_DCGM."""
    return f"{OF_DCGM}-{name.replace('_', '-').lower()}"


def _shown(label: str) -> str:
    return one_line(label, _MOST_SHOWN)
