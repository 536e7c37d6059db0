"""The operator as a process: what it says of nodes in the status, and in events."""

from collections.abc import Iterator
from typing import Any

import pytest

from exporter.operator.objects.kinds import DAEMON_SET, EVENT, POD, Key, key_of
from tests.support.operator import Api, Object, OperatorProcess, exporter, list_of_fields, until


@pytest.fixture
def key(api: Api, operator: OperatorProcess, namespace: str) -> Iterator[Key]:
    """A GPUExporter of two nodes, of which one is not ready."""
    api.set_nodes("ab", unready="b")
    made = key_of(api.put(exporter("gpu", namespace)))
    until(lambda: status(api, made).get("nodesWanted") == 2, why=lambda: api.get(made))
    yield made
    api.remove(made)  # a younger one of the same nodes would leave them alone


def status(api: Api, key: Key) -> Object:
    return dict((api.get(key) or {}).get("status", {}))


def condition(api: Api, key: Key, kind: str) -> Any:
    found = {each["type"]: each for each in status(api, key).get("conditions", ())}
    return found.get(kind, {"status": "", "reason": "", "message": ""})


def events(api: Api, key: Key) -> dict[str, Object]:
    """The last event of each reason."""
    _, answer = api.ask("GET", EVENT.path(key.namespace))
    return {each["reason"]: each for each in answer["items"] if each["regarding"]["name"] == key.name}


def pods_on(api: Api, namespace: str) -> list[str]:
    """Each pod's node, if it has one already, and exporter."""
    _, answer = api.ask("GET", POD.path(namespace))
    named = "app.kubernetes.io/instance"
    return sorted(f"{each['spec'].get('nodeName', '')} {each['metadata']['labels'][named]}" for each in answer["items"])


def test_a_node_that_becomes_ready(api: Api, key: Key) -> None:
    until(lambda: status(api, key)["nodesReady"] == 1, why=lambda: api.get(key))
    until(lambda: condition(api, key, "Ready")["reason"] == "NodesNotReady", why=lambda: api.get(key))
    until(lambda: "created" in events(api, key).get("Applied", {"note": ""})["note"])
    api.set_nodes("ab")
    until(lambda: status(api, key)["nodesReady"] == 2, why=lambda: api.get(key))
    until(lambda: condition(api, key, "Ready")["status"] == "True", why=lambda: api.get(key))
    told = until(lambda: events(api, key).get("NodesReady"), why=lambda: events(api, key))
    assert told is not None
    assert (told["type"], told["note"]) == ("Normal", "all 2 nodes are ready")
    assert told["regarding"]["uid"] == (api.get(key) or {})["metadata"]["uid"]


def troubles(api: Api, key: Key) -> list[tuple[str, str, str]]:
    """Node, source and reason of each."""
    return [(each["node"], each["source"], each["reason"]) for each in status(api, key).get("troubles", ())]


def test_a_pod_whose_image_cannot_be_had(api: Api, key: Key) -> None:
    until(lambda: pods_on(api, key.namespace) == ["a gpu", "b gpu"], why=lambda: pods_on(api, key.namespace))
    _, pods = api.ask("GET", POD.path(key.namespace))
    (name,) = [each["metadata"]["name"] for each in pods["items"] if each["spec"]["nodeName"] == "b"]
    waits: Object = {
        "name": "exporter",
        "image": "x:1",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
    }
    said = {"status": {"containerStatuses": [waits]}}
    path = f"{POD.path(key.namespace, name)}/status"
    assert api.ask("PATCH", path, said, "application/merge-patch+json")[0] == 200
    # somebody looks: pods themselves are not watched, and are looked at with every change, or after half a minute
    api.patch(key, {"metadata": {"annotations": {"look": "now"}}})
    until(lambda: troubles(api, key) == [("b", "pod", "ImagePullBackOff")], why=lambda: api.get(key))
    assert status(api, key)["nodesInTrouble"] == 1
    assert "the registry does not have it" in condition(api, key, "Degraded")["message"]
    told = until(lambda: events(api, key).get("NodeTrouble"), why=lambda: events(api, key))
    assert told is not None
    assert (told["type"], told["note"][:6]) == ("Warning", "b: pod")


# issue 22, line 9
def test_the_nodes_of_a_daemon_set_of_somebody_else_are_not_counted(
    api: Api, operator: OperatorProcess, namespace: str
) -> None:
    labels = {"app": "theirs"}
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}},
    }
    about = {"name": "gpu", "namespace": namespace}
    api.set_nodes("ab")
    theirs = key_of(
        api.put({"apiVersion": DAEMON_SET.api_version, "kind": "DaemonSet", "metadata": about, "spec": spec})
    )
    until(lambda: status(api, theirs).get("numberReady") == 2, why=lambda: api.get(theirs))
    key = key_of(api.put(exporter("gpu", namespace)))
    until(lambda: condition(api, key, "Ready")["reason"] == "NotOurs", why=lambda: (api.get(key), operator.told))
    assert {"nodesWanted", "nodesReady"}.isdisjoint(status(api, key))
    api.remove(theirs)
    until(lambda: status(api, key).get("nodesReady") == 2, why=lambda: api.get(key))
    api.remove(key)


# issue 15, line 13
def test_a_list_of_fields_that_is_not_there_leaves_the_pods_alone(api: Api, key: Key) -> None:
    mine, theirs = Key(DAEMON_SET.name, key.namespace, "gpu"), Key("ConfigMap", key.namespace, "gpu-counters")
    before = (api.get(mine) or {})["spec"], (api.get(theirs) or {})["metadata"]["uid"]
    api.patch(key, {"spec": {"collectors": {"configMap": {"name": "mine"}}}})
    until(lambda: condition(api, key, "Ready")["reason"] == "CollectorsMissing", why=lambda: api.get(key))
    until(lambda: events(api, key).get("CollectorsMissing"))
    until(lambda: status(api, key).get("nodesInTrouble") == 2, why=lambda: api.get(key))
    assert ((api.get(mine) or {})["spec"], (api.get(theirs) or {})["metadata"]["uid"]) == before
    api.put(list_of_fields("mine", key.namespace))
    # a ConfigMap of others is not watched, and is looked at with every change, or after half a minute
    api.patch(key, {"metadata": {"annotations": {"look": "now"}}})
    until(lambda: (api.get(mine) or {})["spec"] != before[0], why=lambda: api.get(key))
    until(lambda: api.get(theirs) is None)


# issue 15, line 16
def test_the_younger_exporter_of_a_node_does_not_roll_out_there(
    api: Api, operator: OperatorProcess, namespace: str
) -> None:
    """Before, both were Ready, and sum by (node) counted the GPU of node b twice."""
    api.set_nodes("ab", labels={"b": {"pool": "b"}})
    old = key_of(api.put(exporter("old", namespace, nodeSelector={"pool": "b"})))
    until(lambda: pods_on(api, namespace) == ["b old"], why=lambda: api.get(old))
    wide, same = (key_of(api.put(exporter(name, namespace))) for name in ("young", "zero"))
    for key in (wide, same):
        until(lambda key=key: condition(api, key, "Ready")["reason"] == "Overlaps", why=lambda: operator.told)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        until(lambda key=key: events(api, key).get("Overlaps"))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    until(lambda: pods_on(api, namespace) == ["a young", "b old"], why=lambda: pods_on(api, namespace))
    assert f"the older GPUExporter {namespace}/old chooses" in condition(api, wide, "Degraded")["message"]
    until(lambda: status(api, same).get("nodesWanted") == 0, why=lambda: api.get(same))
    for gone in (old, wide):
        api.remove(gone)
        until(lambda gone=gone: not any(str(gone.name) in pod for pod in pods_on(api, namespace)))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    # others are not told of its end, and look every half minute
    api.patch(same, {"metadata": {"annotations": {"look": "now"}}})
    until(lambda: pods_on(api, namespace) == ["a zero", "b zero"], why=lambda: (api.get(same), operator.told))
    until(lambda: condition(api, same, "Ready")["status"] == "True")
    api.remove(same)


def test_somebodys_edit_is_told_with_who_it_was(api: Api, key: Key) -> None:
    path = f"{DAEMON_SET.path(key.namespace, 'gpu')}?fieldManager=somebody"
    edit = {"spec": {"template": {"spec": {"priorityClassName": "other"}}}}
    assert api.ask("PATCH", path, edit, "application/merge-patch+json")[0] == 200
    told = until(lambda: events(api, key).get("Corrected"), why=lambda: events(api, key))
    assert told is not None
    assert told["note"].startswith(
        "put DaemonSet gpu (spec.template.spec.priorityClassName) back to what is wanted: somebody had changed it"
    )
