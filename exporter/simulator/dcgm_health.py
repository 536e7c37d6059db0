"""The findings of DCGM's health watches about a simulated GPU, as dcgm-exporter shows them from 4.0.0 on.

Each watch has a row for each GPU, whole or cut, and none for MIG instances (its gpu_health_collector.go). DCGM judges
by the XIDs that it has seen since its start, which it never forgets, and by clocks that were lowered within the last
minute (its modules/health/DcgmHealthWatch.cpp). Here presently lowered clocks count.

Tests: tests/node/test_dcgm_health.py.
"""

from collections.abc import Sequence

from exporter.dcgm.health_watches import FAIL, WARN, WHOLE_GPU
from exporter.simulator.machine import POWER_CAP, THERMAL
from exporter.simulator.readings import Reading

# in dcgm-exporter's order
_WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER")
_PASS = ("DCGM_FR_OK", 0)
_BY_XID = {
    **dict.fromkeys((48, 74, 119, 120, 140), (WHOLE_GPU, "DCGM_FR_XID_ERROR", FAIL)),
    79: (WHOLE_GPU, "DCGM_FR_FALLEN_OFF_BUS", FAIL),
    94: (WHOLE_GPU, "DCGM_FR_UNKNOWN(131)", WARN),  # its go-dcgm has no name for DCGM_FR_CONTAINED_ERROR
    95: (WHOLE_GPU, "DCGM_FR_UNCONTAINED_ERROR", FAIL),
    **dict.fromkeys((31, 32, 43), ("MEM", "DCGM_FR_XID_ERROR", WARN)),
    63: ("MEM", "DCGM_FR_PENDING_PAGE_RETIREMENTS", WARN),
    64: ("MEM", "DCGM_FR_ROW_REMAP_FAILURE", FAIL),
}
_BY_CLOCKS = {
    THERMAL: ("THERMAL", "DCGM_FR_CLOCK_THROTTLE_THERMAL", WARN),
    POWER_CAP: ("POWER", "DCGM_FR_CLOCK_THROTTLE_POWER", WARN),
}
_UNREADABLE = ("POWER", "DCGM_FR_POWER_UNREADABLE", WARN)


def rows_of_watches(xids: Sequence[int], reasons: int, *, is_lost: bool, has_whole_gpu: bool) -> Reading:
    """A GPU's row of each watch. If a watch has several errors, the last one is shown.

    Args:
        xids: the XIDs since DCGM's start.
        reasons: NVML's bits of reasons for lowered clocks.
        is_lost: the GPU has fallen off the bus.
        has_whole_gpu: there is a row ALL, from dcgm-exporter 4.8.2 on.
    """
    incidents = [_BY_XID[xid] for xid in xids if xid in _BY_XID]
    if is_lost:
        incidents.append(_UNREADABLE)
    else:
        incidents += (incident for bits, incident in _BY_CLOCKS.items() if reasons & bits)
    shown = {watch: (error, value) for watch, error, value in incidents}
    watches = (*_WATCHES, WHOLE_GPU) if has_whole_gpu else _WATCHES
    return [
        ((("health_error_code", error), ("health_watch", watch)), value)
        for watch in watches
        for error, value in (shown.get(watch, _PASS),)
    ]
