"""docs/operator.md#when-it-does-not-work names every reason that the operator gives, and no other."""

import inspect
import re

from exporter.operator import event_texts, pod_events
from exporter.operator import exporter_health as health
from exporter.operator.exporters import exporter_pods, exporter_status
from exporter.operator.exporters.desired import METRICS_PORT
from exporter.operator.objects import object_fields
from tests.support.places import ROOT

_, _, PAGE = (ROOT / "docs" / "operator.md").read_text().partition("\n## When it does not work\n")
# in the code: the reason of a Condition, of a Trouble, of an Event, of what the API server refuses
GIVEN = re.compile(
    r"(?:Condition\(\s*\"(?:True|False|Unknown)\",\s*|Trouble\(\s*|(?i:reason) = |Event\(\s*\"(?:Normal|Warning)\",\s*"
    r"|\"(?:permission|unauthorized|oversize)\": )"
    r"\"([A-Z][a-z]\w+)\""
)


def given() -> set[str]:
    texts = [inspect.getsource(module) for module in (event_texts, pod_events, exporter_status, object_fields)]
    found = {reason for text in texts for reason in GIVEN.findall(text)}
    return found | set(re.findall(r'"((?:Switched|Api|Refused)\w*)"', "".join(texts)))


def test_every_reason_is_on_the_page() -> None:
    reasons = given()
    assert {"NodesReady", "WaitsForNodes", "CollectorsMissing", "SwitchedToHpa", "ApiUnavailable"} <= reasons
    assert not {reason for reason in reasons if f"`{reason}`" not in PAGE}


def test_the_page_names_no_reason_that_there_is_not() -> None:
    of_kubernetes = {"ImagePullBackOff", "CrashLoopBackOff", "Unschedulable", "CreateContainerConfigError", "Evicted"}
    conditions = {"Ready", "Progressing", "Degraded", exporter_status.EVENTS_WRITTEN}
    of_pods = {"NodeLost", "NotReady"}
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][A-Za-z]*)?)`", PAGE))
    assert named - of_kubernetes - conditions - of_pods <= given() | {"Waiting"}


def test_its_numbers_are_the_programs() -> None:
    text = " ".join(PAGE.split())
    assert f"at most {exporter_status.MOST_TROUBLES} entries, each" in text
    assert f"on port {METRICS_PORT} of its pod, every {health.EVERY_SECONDS:g} s, {health.AT_ONCE} at a time" in text
    assert f"every {health.SELDOM_SECONDS / 60:g} minutes" in text
    assert f"seen twice, {health.AGAIN_SECONDS:g} s apart" in text
    assert f"no trouble for {exporter_pods.STARTING_SECONDS / 60:g} minutes" in text
