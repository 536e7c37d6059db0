"""GPUAutoscalers of a real process: the right object, once; with KEDA, without it, and when it comes or goes.

# issue 14, "Must show" 2
"""

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.operator.objects.kinds import GPU_AUTOSCALER, SCALED_OBJECT, Key, key_of
from tests.support.operator import Api, Object, OperatorProcess, changed, names, until, versions

REF = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "trainer"}


def autoscaler(namespace: str, name: str = "trainer", **spec: Any) -> Object:
    given = {"scaleTargetRef": REF, "metric": "gpu_utilization", "target": 70, "maxReplicas": 8, **spec}
    return {
        "apiVersion": GPU_AUTOSCALER.api_version,
        "kind": GPU_AUTOSCALER.name,
        "metadata": {"name": name, "namespace": namespace},
        "spec": given,
    }


def deploy(api: Api, namespace: str, name: str = "trainer") -> str:
    """A workload; its path."""
    labels = {"app": name}
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    container = {"name": "main", "image": "registry.example.com/trainer:1"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    about = {"name": name, "namespace": namespace}
    status, answer = api.ask(
        "POST", path, {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": about, "spec": spec}
    )
    assert status == 201, answer
    return f"{path}/{name}"


def ready(api: Api, key: Key) -> Object:
    """The condition Ready, as it is of the spec now."""
    item = api.get(key) or {}
    status = item.get("status", {})
    if status.get("observedGeneration") != item.get("metadata", {}).get("generation"):
        return {}
    return next(condition for condition in status["conditions"] if condition["type"] == "Ready")


@pytest.fixture
def without_keda(api: Api) -> Iterator[None]:
    """What a test leaves defined is gone after it."""
    yield
    if api.ask("GET", SCALED_OBJECT.path(None))[0] == 200:
        api.undefine(SCALED_OBJECT)


def test_keda_comes_and_goes(api: Api, operator: OperatorProcess, namespace: str, without_keda: None) -> None:
    deploy(api, namespace)
    key = key_of(api.put(autoscaler(namespace)))
    hpa, scaled = {"HorizontalPodAutoscaler trainer"}, {"ScaledObject trainer"}
    both = []

    def is_now(wanted: set[str]) -> bool:
        found = names(api.made_in(namespace))
        if len(found) > 1:
            both.append(found)
        return found == wanted

    until(lambda: is_now(hpa), why=lambda: (api.get(key), operator.told))
    until(lambda: (api.get(key) or {}).get("status", {}).get("via") == "hpa")
    for _ in range(2):
        api.define(SCALED_OBJECT)
        until(lambda: is_now(scaled), 15, lambda: (api.get(key), operator.told))
        until(lambda: (api.get(key) or {})["status"].get("via") == "keda")
        api.undefine(SCALED_OBJECT)
        until(lambda: is_now(hpa), 15, lambda: (api.get(key), operator.told))
    assert not both


def test_an_edit_changes_the_one_object_and_deletion_takes_it(
    api: Api, operator: OperatorProcess, namespace: str
) -> None:
    deploy(api, namespace)
    key = key_of(api.put(autoscaler(namespace)))
    until(lambda: ready(api, key).get("reason") == "Starting", why=lambda: api.get(key))
    before = api.made_in(namespace)
    for spec in ({"maxReplicas": 9}, {"target": 50.5}, {"minReplicas": 2}, {"metric": "power_usage"}):
        api.patch(key, {"spec": spec})
        until(lambda: ready(api, key))
        after = api.made_in(namespace)
        assert changed(before, after) == {"HorizontalPodAutoscaler"}, spec
        before = after
    api.patch(next(iter(before)), {"spec": {"maxReplicas": 100}})  # somebody else's edit
    until(lambda: next(iter(api.made_in(namespace).values()))["spec"]["maxReplicas"] == 9)
    api.remove(key)
    until(lambda: not api.made_in(namespace))


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        ({"scaleTargetRef": {**REF, "name": "nobody"}}, "TargetNotFound", "spec.scaleTargetRef.name"),
        ({"scaleTargetRef": {**REF, "kind": "DaemonSet"}}, "InvalidTarget", "spec.scaleTargetRef.kind"),
        ({"metric": "sm_occupancy"}, "MetricNeedsKeda", "spec.metric"),
    ],
)
def test_what_cannot_be_scaled_is_explained(
    api: Api, operator: OperatorProcess, namespace: str, spec: Object, reason: str, says: str
) -> None:
    deploy(api, namespace)
    key = key_of(api.put(autoscaler(namespace, **spec)))
    until(lambda: ready(api, key).get("reason") == reason, why=lambda: api.get(key))
    assert says in ready(api, key)["message"]
    assert not api.made_in(namespace)


def test_the_second_of_a_workload_makes_nothing(api: Api, operator: OperatorProcess, namespace: str) -> None:
    deploy(api, namespace)
    first = key_of(api.put(autoscaler(namespace, "a")))
    until(lambda: ready(api, first))
    before = versions(api.made_in(namespace))
    second = key_of(api.put(autoscaler(namespace, "b")))
    until(lambda: ready(api, second).get("reason") == "TargetScaledByOther", why=lambda: api.get(second))
    assert versions(api.made_in(namespace)) == before


def test_what_the_autoscaler_says_is_in_the_status(api: Api, operator: OperatorProcess, namespace: str) -> None:
    deploy(api, namespace)
    key = key_of(api.put(autoscaler(namespace)))
    until(lambda: ready(api, key))
    told = {
        "currentReplicas": 2,
        "desiredReplicas": 4,
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": "",
                "lastTransitionTime": "2026-11-22T10:00:00Z",
            }
            for kind, reason in (("AbleToScale", "ReadyForNewScale"), ("ScalingActive", "ValidMetricFound"))
        ],
    }
    path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers/trainer/status"
    assert api.ask("PATCH", path, {"status": told}, "application/merge-patch+json")[0] == 200
    until(lambda: ready(api, key)["reason"] == "Scaling", why=lambda: api.get(key))
    status = (api.get(key) or {})["status"]
    assert (status["currentReplicas"], status["desiredReplicas"]) == (2, 4)
