"""The verdicts on devices as the conventions' hw.status: for each state a sum that is 1 or 0. Pure.

A verdict has more words than the conventions. Failing and gone, which both make a device useless, are `failed`. A row
of memory that could not be remapped is the only fault with which a device works on although it must be replaced: if it
is the only fault that makes the device failing, the state is `predicted_failure`. No state is pushed for a device whose
verdict is unknown.

Tests: tests/outputs/test_otlp.py.
"""

from exporter.model.health import DeviceVerdict
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.otlp.points import Instrument, MetricPoints
from exporter.outputs.otlp.subjects import Subjects

STATUS = Instrument("hw.status", "updowncounter", "1", is_whole=True)
_STATES = ("ok", "degraded", "failed", "predicted_failure")
_STATE_OF = {"ok": "ok", "degraded": "degraded", "failing": "failed", "gone": "failed"}
_WORKS_ON = "row-remap-failed"


def status_of(snapshot: Snapshot, subjects: Subjects) -> Work[list[MetricPoints]]:
    """The points of hw.status: 1 for a device's state, 0 for all other states, for each container that holds it."""
    by_state = {state: MetricPoints(STATUS, (("hw.state", state),)) for state in _STATES}
    of_devices = yield from subjects.of_devices(snapshot)
    for count, (key, of_device) in enumerate(of_devices.items(), 1):
        if not count % ITEMS_A_SLICE:
            yield
        now = _state(snapshot.verdicts[key])
        if now:
            for state, points in by_state.items():
                points.values.update(dict.fromkeys(of_device, int(state == now)))
    return [points for points in by_state.values() if points.values]


def _state(verdict: DeviceVerdict) -> str:
    faults = {reason.reason for reason in verdict.reasons if reason.verdict == "failing"}
    if verdict.verdict == "failing" and faults == {_WORKS_ON}:
        return "predicted_failure"
    return _STATE_OF.get(verdict.verdict, "")
