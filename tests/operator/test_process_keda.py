"""What KEDA and the cluster role say of a GPUAutoscaler, by a real process. Their part is written here.

# issue 14, "Must show" 2
"""

from collections.abc import Iterator

import pytest

from exporter.operator.objects.kinds import AUTOSCALER, SCALED_OBJECT, Key, key_of
from tests.operator.autoscaling import by_keda
from tests.operator.test_process_autoscaling import autoscaler, deploy, ready
from tests.support.operator import MERGE, Api, Object, OperatorProcess, names, until


@pytest.fixture(scope="module")
def keda(api: Api) -> Iterator[None]:
    """Before the operator: what it does when KEDA comes is shown elsewhere."""
    api.define(SCALED_OBJECT)
    until(lambda: api.ask("GET", SCALED_OBJECT.path(None))[0] == 200)
    yield
    api.undefine(SCALED_OBJECT)


# issue 15, line 17
def test_a_team_pauses_its_scaling_by_its_own_object(
    api: Api, keda: None, operator: OperatorProcess, namespace: str
) -> None:
    deploy(api, namespace)
    key, scaled = key_of(api.put(autoscaler(namespace))), Key(SCALED_OBJECT.name, namespace, "trainer")
    until(lambda: api.get(scaled), why=lambda: (api.get(key), operator.told))
    api.patch(scaled, {"metadata": {"annotations": {"of": "others"}}})
    for value, expected in (("true", {"autoscaling.keda.sh/paused": "true"}), (None, {})):
        api.patch(key, {"metadata": {"annotations": {"autoscaling.keda.sh/paused": value}}})
        until(
            lambda: (api.get(scaled) or {})["metadata"]["annotations"] == {"of": "others", **expected},  # noqa: B023
            why=lambda: (api.get(scaled), operator.told),
        )


def _failure(scaled: Object) -> Object:
    """The event that KEDA makes of an error of the cluster role (pkg/scaling/scale_handler.go)."""
    about = {name: scaled["metadata"][name] for name in ("name", "namespace", "uid")}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "trainer.1", "namespace": about["namespace"]},
        "regarding": {"apiVersion": scaled["apiVersion"], "kind": scaled["kind"], **about},
        "reason": "KEDAScalerFailed",
        "note": "rpc error: code = Unavailable desc = 1 of 4 nodes did not answer",
        "eventTime": "2026-11-22T10:10:00.000000Z",
        "type": "Warning",
        "action": "KEDAScalerFailed",
        "reportingController": "keda-operator",
        "reportingInstance": "keda-operator-0",
    }


def test_what_keda_and_the_cluster_role_say_is_told(
    api: Api, keda: None, operator: OperatorProcess, namespace: str
) -> None:
    deploy(api, namespace)
    key = key_of(api.put(autoscaler(namespace)))
    scaled = Key(SCALED_OBJECT.name, namespace, "trainer")
    until(lambda: names(api.made_in(namespace)) == {"ScaledObject trainer"}, why=lambda: (api.get(key), operator.told))
    item = api.made_in(namespace)[scaled]
    good = {"type": "Ready", "status": "True", "reason": "ScaledObjectReady", "message": "it is ready"}
    api.patch(scaled, {"status": {"hpaName": "keda-hpa-trainer", "conditions": [good]}})
    until(lambda: ready(api, key).get("status") == "True", why=lambda: (api.get(key), operator.told))
    # KEDA's own HPA fails. The event of the ScaledObject says why: the cluster role's own words
    its = by_keda(item)
    its["metadata"]["namespace"] = namespace
    its["spec"]["maxReplicas"] = 8
    api.put(its)
    told = api.ask("POST", f"/apis/events.k8s.io/v1/namespaces/{namespace}/events", _failure(item))
    assert told[0] == 201, told
    failing = {"type": "ScalingActive", "status": "False", "reason": "FailedGetExternalMetric", "message": "no value"}
    status = {"currentReplicas": 2, "desiredReplicas": 2, "conditions": [failing]}
    path = f"{AUTOSCALER.path(namespace, 'keda-hpa-trainer')}/status"
    assert api.ask("PATCH", path, {"status": status}, MERGE)[0] == 200
    until(lambda: ready(api, key).get("reason") == "FailedGetExternalMetric", why=lambda: (api.get(key), operator.told))
    said = "no value (the cluster role said: 1 of 4 nodes did not answer)"
    until(lambda: said in ready(api, key)["message"], why=lambda: (api.get(key), operator.told))
    assert ready(api, key)["status"] == "False"
    assert (api.get(key) or {})["status"]["currentReplicas"] == 2
    # it is KEDA's, and stays
    assert names(api.made_in(namespace)) == {"ScaledObject trainer", "HorizontalPodAutoscaler keda-hpa-trainer"}
