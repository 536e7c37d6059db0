"""Whatever the Kubernetes API says of a GPUExporter, its DaemonSet and its pods, there is a status."""

from datetime import timedelta

import jsonschema
from hypothesis import given
from hypothesis import strategies as st

from exporter.errors import Trouble
from exporter.operator.exporters.exporter_status import ExporterObjects, status_of
from tests.operator.made import NOW, Object, daemon_set, ended, gpu_exporter, hostile, pending, pod, waiting
from tests.operator.test_exporter_status import dcgm_down, of
from tests.support import quick_yaml
from tests.support.places import ROOT

CRDS = quick_yaml.load_all((ROOT / "deploy" / "operator" / "crds.yaml").read_text())
SCHEMA = next(each for each in CRDS if each["spec"]["names"]["kind"] == "GPUExporter")["spec"]["versions"][0]["schema"]
STATUS = jsonschema.Draft202012Validator(SCHEMA["openAPIV3Schema"]["properties"]["status"])


NO = Trouble("Refused", "a policy says no", "leave it out")
EXPORTERS = hostile(
    gpu_exporter(),
    gpu_exporter(status=of(daemon_set=daemon_set(1), pods=[pod("a")], troubles=[dcgm_down()], event_troubles=[NO])),
)
DAEMON_SETS = hostile(daemon_set(), daemon_set(3, 1, updated=2, misplaced=1))
PODS = hostile(
    pod(),
    pod("a", waiting("CrashLoopBackOff", "back-off 10s", lastState=ended(2), restartCount=4), ready=False),
    pending("b", waiting("ImagePullBackOff", "not found")),
    pending("c", conditions={"PodScheduled": {"reason": "Unschedulable", "message": "0/1 nodes are available: no"}}),
    pod("d", phase="Failed", reason="Evicted"),
)


@given(exporter=EXPORTERS, made=st.none() | DAEMON_SETS, pods=st.lists(PODS, max_size=4), asked=st.booleans())
def test_whatever_the_api_says_there_is_a_status(
    exporter: Object, made: Object | None, pods: list[Object], asked: bool
) -> None:
    """And it is one that the schema takes, and that stays as it is."""
    seen = ExporterObjects(daemon_set=made, pods=pods, troubles=() if asked else None, event_troubles=())
    status = status_of(exporter, seen, NOW)
    assert [each["type"] for each in status["conditions"]] == ["Ready", "Progressing", "Degraded", "EventsWritten"]
    for validator in STATUS.iter_errors(status):
        raise AssertionError(validator.message)
    again = status_of({**exporter, "status": status}, seen, NOW + timedelta(seconds=1))
    assert again == status
