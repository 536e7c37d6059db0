"""The status of a GPUAutoscaler: what is said of which state."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from exporter.errors import Trouble
from exporter.operator.autoscalers.autoscaler_status import Decision, LastScale, autoscaler_status
from exporter.operator.autoscalers.choice import WantedScaler
from exporter.operator.objects.resources import Object
from tests.operator.autoscaling import UID, gpu_autoscaler
from tests.operator.specs import complaints

NOW = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
LATER = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)
BAD = Trouble("TargetNotFound", "spec.scaleTargetRef.name: there is none", "make it")
NOTE = Trouble("KedaMissing", "spec.idleSeconds: without KEDA it stays", "install it")
FAILED = Trouble("FailedGetPodsMetric", "no value", "look")
REFUSED = Trouble("Refused", "the Kubernetes API refuses it", "change what it names")
SPEAKS = Decision(has_spoken=True, replicas=2, wanted=3, last_scale=LastScale(time=NOW, before=2, after=3, reason="x"))
HPA: Object = {"wanted": WantedScaler(), "via": "hpa", "decision": SPEAKS}
IN_TROUBLE = {**HPA, "wanted": WantedScaler(trouble=BAD)}
AT_MOST = "the desired replica count is more than the maximum replica count"


def item(status: Object | None = None) -> Object:
    made = gpu_autoscaler("trainer", UID)
    made["metadata"]["generation"] = 3
    return {**made, "status": status or {}}


def told(scaled: Object, old: Object | None = None, now: datetime = NOW) -> Object:
    """The status, which the schema takes."""
    status = autoscaler_status(item(old), now, **scaled)
    assert complaints("GPUAutoscaler", item(status)) == []
    return status


def saying(**changes: Any) -> Object:
    return {**HPA, "decision": replace(SPEAKS, **changes)}


READY: dict[str, tuple[Object, tuple[str, str]]] = {
    "it scales": (HPA, ("True", "Scaling")),
    "it was just applied": ({**HPA, "decision": Decision()}, ("Unknown", "Starting")),
    "the API server does not take it": ({**IN_TROUBLE, "obstacles": [REFUSED]}, ("False", "Refused")),
    "the spec is wrong, whatever scales": (IN_TROUBLE, ("False", "TargetNotFound")),
    "not all is as it is asked for": ({**HPA, "wanted": WantedScaler(misgiving=NOTE)}, ("True", "KedaMissing")),
    "what scales has trouble": (saying(trouble=FAILED), ("False", "FailedGetPodsMetric")),
    "and not all is as it is asked for": (
        {**saying(trouble=FAILED), "wanted": WantedScaler(misgiving=NOTE)},
        ("False", FAILED.reason),
    ),
    "it has taken the workload to zero": (saying(is_idle=True), ("True", "Idle")),
    "it may not go further": (saying(limited=AT_MOST), ("True", "Limited")),
    "one goes before the other comes": (
        {**HPA, "wanted": WantedScaler(waits_for="x to be deleted")},
        ("False", "Waiting"),
    ),
}


@pytest.mark.parametrize("name", READY)
def test_the_condition_says_how_it_is(name: str) -> None:
    scaled, expected = READY[name]
    status = told(scaled)
    (ready,) = status["conditions"]
    assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", *expected)
    assert ready["observedGeneration"] == status["observedGeneration"] == 3
    assert ready["message"]


def test_what_is_known_is_told_and_nothing_else() -> None:
    last = {"time": "2026-11-22T10:00:00Z", "from": 2, "to": 3, "reason": "x"}
    said: dict[str, Any] = {"via": "hpa", "currentReplicas": 2, "desiredReplicas": 3, "lastScale": last}
    status = told(HPA)
    assert {name: status.get(name) for name in said} == said
    assert told({"wanted": WantedScaler(trouble=BAD)}).keys() == {"observedGeneration", "conditions"}
    # what happened is not forgotten where nothing is known of it now
    assert told({"wanted": WantedScaler(trouble=BAD)}, status)["lastScale"] == last


def test_an_unchanged_truth_gives_an_equal_status() -> None:
    first = told(HPA)
    assert told(HPA, first, LATER) == first


def test_what_limits_it_is_told() -> None:
    (ready,) = told(saying(limited=AT_MOST))["conditions"]
    assert ready["message"].endswith(AT_MOST)
