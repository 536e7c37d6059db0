"""How devices are, as the conventions' hw.status: for each state a sum that is 1 or 0, by the verdicts. Pure.

A verdict has more words than the conventions. Both that make a device useless, failing and gone, are `failed`. A row of
memory that could not be remapped is the one fault with which a device works on, and is to be replaced: if no other one
makes it failing, that is `predicted_failure`. Of an unknown device no state is pushed.
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
    """1 for the state of each device, and for whoever holds it, and 0 for all other states."""
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
    faults = {reason.code for reason in verdict.reasons if reason.verdict == "failing"}
    if verdict.verdict == "failing" and faults == {_WORKS_ON}:
        return "predicted_failure"
    return _STATE_OF.get(verdict.verdict, "")
