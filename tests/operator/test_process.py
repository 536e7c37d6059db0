"""The operator as a process: a GPUExporter is made, changed, and deleted; others change what it made.

# issue 14, "Must show" 1
"""

import time
from typing import Any

import pytest

from exporter.operator.exporters.desired import desired
from exporter.operator.objects.kinds import POD_MONITOR, Key, key_of
from exporter.operator.objects.resources import read_exporter
from tests.operator.specs import EVERYTHING
from tests.support.operator import (
    Api,
    OperatorProcess,
    changed,
    exporter,
    is_seen,
    list_of_fields,
    names,
    until,
    versions,
)

ALL = {"ClusterRoleBinding", "Service", "ConfigMap", "ServiceAccount", "DaemonSet"}
# A field of the spec → the objects that it changes, and no other is touched.
EDITS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "image": ({"image": "registry.example.com/exporter:1"}, {"DaemonSet"}),
    "dcgmImage": ({"dcgmImage": "registry.example.com/dcgm:1"}, {"DaemonSet"}),
    "imagePullSecrets": ({"imagePullSecrets": ["pull"]}, {"DaemonSet"}),
    "runtimeClassName": ({"runtimeClassName": "nvidia"}, {"DaemonSet"}),
    "collectors.fields": ({"collectors": {"fields": ["DCGM_FI_DEV_GPU_UTIL"]}}, {"ConfigMap"}),
    "collectors.configMap": ({"collectors": {"configMap": {"name": "mine"}}}, {"DaemonSet", "-ConfigMap"}),
    "intervalSeconds": ({"intervalSeconds": 10}, {"DaemonSet"}),
    "nodeSelector": ({"nodeSelector": {"gpu": "a100"}}, {"DaemonSet"}),
    "tolerations": ({"tolerations": [{"operator": "Exists"}]}, {"DaemonSet"}),
    "sharing": ({"sharing": "split"}, {"ConfigMap"}),  # the exporter reads its file again
    "labels": ({"labels": {"podLabels": ["team"]}}, {"ConfigMap"}),
    "workloads": ({"workloads": "off"}, {"DaemonSet", "-ServiceAccount", "-ClusterRoleBinding"}),
    "allocators": ({"allocators": True}, {"DaemonSet"}),  # it needs folders of the kubelet
    "nvml": ({"nvml": "off"}, {"ConfigMap"}),
    "probe": ({"probe": "on"}, {"DaemonSet", "ConfigMap"}),  # it needs other rights
    "kernelLog": ({"kernelLog": "on"}, {"DaemonSet"}),  # it needs a privileged container
    "events": ({"kernelLog": "on", "events": "on"}, {"DaemonSet"}),
    "resources": ({"resources": {"exporter": {"limits": {"memory": "256Mi"}}}}, {"DaemonSet"}),
    "serviceMonitor": ({"serviceMonitor": {"enabled": "off"}}, set()),
}


def holds(wanted: Any, live: Any) -> bool:
    """Whether what is wanted is there; the API server adds its defaults."""
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(name in live and holds(wanted[name], live[name]) for name in wanted)
    if isinstance(wanted, (list, tuple)):
        return len(wanted) == len(live) and all(map(holds, wanted, live))
    return bool(wanted == live)


def make(api: Api, name: str, namespace: str, **spec: Any) -> Key:
    """A GPUExporter, whose objects are there."""
    key = key_of(api.put(exporter(name, namespace, **spec)))
    until(lambda: is_seen(api, key), why=lambda: api.get(key))
    return key


def test_the_objects_of_an_exporter_are_made(api: Api, operator: OperatorProcess, namespace: str) -> None:
    key = make(api, "gpu", namespace)
    made, item = api.made_in(namespace), api.get(key)
    assert item is not None
    wanted = desired("gpu", namespace, item["metadata"]["uid"], read_exporter(item), pod_monitors=False)
    assert made.keys() == {key_of(each) for each in wanted}
    for each in wanted:
        there = made[key_of(each)]
        assert there["metadata"].get("ownerReferences") == each["metadata"].get("ownerReferences")
        (entry,) = [entry for entry in there["metadata"]["managedFields"] if "subresource" not in entry]
        assert (entry["manager"], entry["operation"]) == ("pod-gpu-metrics-operator", "Apply")
        for name in each.keys() - {"apiVersion", "kind", "metadata"}:
            assert holds(each[name], there[name]), (each[name], there[name])


def test_nothing_is_left_of_a_deleted_exporter(api: Api, operator: OperatorProcess, namespace: str) -> None:
    key = make(api, "gpu", namespace)
    api.remove(key)

    until(lambda: not api.made_in(namespace), why=lambda: names(api.made_in(namespace)))


# What somebody does to an object → what must be so again.
DRIFT: dict[str, tuple[str, dict[str, Any]]] = {
    "other nodes": ("DaemonSet gpu", {"spec": {"template": {"spec": {"nodeSelector": {"gpu": "none"}}}}}),
    "another list": ("ConfigMap gpu-counters", {"data": {"counters.csv": "DCGM_FI_DEV_FB_USED, gauge, x\n"}}),
    "without its label": ("Service gpu", {"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}}),
    "without its owner": ("DaemonSet gpu", {"metadata": {"ownerReferences": None}}),
    "for nobody": ("ClusterRoleBinding", {"subjects": []}),
}


@pytest.mark.parametrize("edit", DRIFT)
def test_what_somebody_else_changes_is_put_right(
    api: Api, operator: OperatorProcess, namespace: str, edit: str
) -> None:
    which, change = DRIFT[edit]
    make(api, "gpu", namespace)
    key, before = next(
        (key, item) for key, item in api.made_in(namespace).items() if f"{key.kind} {key.name}".startswith(which)
    )

    def content() -> tuple[Any, ...]:
        item = api.get(key) or {}
        about = item.get("metadata", {})
        rest = {name: value for name, value in item.items() if name not in ("metadata", "status")}
        return about.get("labels"), about.get("ownerReferences"), rest

    was = content()
    api.patch(key, change)
    until(lambda: content() == was, why=lambda: (content(), was))
    now = api.get(key)
    assert now is not None
    assert now["metadata"]["uid"] == before["metadata"]["uid"]


def test_what_somebody_adds_beside_it_stays(api: Api, operator: OperatorProcess, namespace: str) -> None:
    make(api, "gpu", namespace)
    key = Key("DaemonSet", namespace, "gpu")
    api.patch(key, {"metadata": {"annotations": {"team": "a"}}, "spec": {"revisionHistoryLimit": 3}})
    was = api.get(key)
    api.patch(Key("GPUExporter", namespace, "gpu"), {"spec": {"intervalSeconds": 10}})
    until(lambda: is_seen(api, Key("GPUExporter", namespace, "gpu")))
    now = api.get(key)
    assert now is not None
    assert was is not None
    assert now["metadata"]["resourceVersion"] != was["metadata"]["resourceVersion"]
    assert now["metadata"]["annotations"]["team"] == "a"
    assert now["spec"]["revisionHistoryLimit"] == 3


def test_a_deleted_object_is_made_again(api: Api, operator: OperatorProcess, namespace: str) -> None:
    make(api, "gpu", namespace)
    before = api.made_in(namespace)
    for key in before:
        api.remove(key)
    until(lambda: api.made_in(namespace).keys() == before.keys())
    after = api.made_in(namespace)
    assert all(versions(after)[key] != was for key, was in versions(before).items())


def test_an_object_of_somebody_else_is_left_alone(api: Api, operator: OperatorProcess, namespace: str) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gpu", "namespace": namespace},
        "spec": {"clusterIP": "None", "selector": {"app": "theirs"}, "ports": [{"port": 80}]},
    }
    was = api.put(theirs)
    key = key_of(api.put(exporter("gpu", namespace)))
    until(lambda: is_seen(api, key))
    status = (api.get(key) or {})["status"]
    (ready,) = [condition for condition in status["conditions"] if condition["type"] == "Ready"]
    assert (ready["status"], ready["reason"]) == ("False", "NotOurs")
    assert "Service gpu" in ready["message"]
    now = api.get(Key("Service", namespace, "gpu"))
    assert now == was
    assert "DaemonSet gpu" in names(api.made_in(namespace))  # the rest is there
    api.remove(Key("Service", namespace, "gpu"))
    until(lambda: "Service gpu" in names(api.made_in(namespace)))
    until(lambda: "NotOurs" not in str((api.get(key) or {})["status"]), why=lambda: (api.get(key), operator.told))


# issue 15, line 14
@pytest.mark.parametrize(("name", "account"), [("default", "default"), ("gpu", "gpu-gpu-metrics")])
def test_an_account_of_somebody_else_is_never_bound(
    api: Api, operator: OperatorProcess, namespace: str, name: str, account: str
) -> None:
    about = {"name": account, "namespace": namespace}
    theirs = key_of(api.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}))
    key = key_of(api.put(exporter(name, namespace)))
    until(lambda: is_seen(api, key))

    def bound() -> set[str]:
        made = (item for each, item in api.made_in(namespace).items() if each.kind == "ClusterRoleBinding")
        return {subject["name"] for item in made for subject in item["subjects"]}

    assert account not in bound()
    if name != account:
        assert "DaemonSet gpu" not in names(api.made_in(namespace))
        assert "NotOurs" in str((api.get(key) or {})["status"])
        api.remove(theirs)
    until(lambda: bound() == {f"{name}-gpu-metrics"}, why=lambda: (api.get(key), operator.told))
    until(lambda: f"DaemonSet {name}" in names(api.made_in(namespace)))


def test_nothing_is_written_that_is_so_already(api: Api, operator: OperatorProcess, namespace: str) -> None:
    specs: tuple[dict[str, Any], ...] = ({}, EVERYTHING, {"nvml": "on", "probe": "on", "tolerations": []})
    keys = [make(api, f"gpu-{number}", namespace, **spec) for number, spec in enumerate(specs)]
    # its nodes have been counted, and its exporters asked: there are none
    until(lambda: not any(word in str(api.get(key)) for key in keys for word in ("'Starting'", "NotAskedYet")))
    time.sleep(0.3)
    was = versions(api.made_in(namespace))
    writes = api.writes(namespace)
    looked = operator.metric('pod_gpu_exporter_operator_reconciliations_total{kind="GPUExporter",result="settled"}')
    # it looks at all of them, and at one for each of these
    for key in keys:
        api.patch(key, {"metadata": {"annotations": {"look": "again"}}})
    until(
        lambda: (
            operator.metric('pod_gpu_exporter_operator_reconciliations_total{kind="GPUExporter",result="settled"}')
            >= looked + 3
        )
    )
    time.sleep(2)
    assert versions(api.made_in(namespace)) == was
    assert api.writes(namespace)[len(writes) :] == []


def test_a_pod_monitor_is_there_while_its_kind_is(api: Api, operator: OperatorProcess, namespace: str) -> None:
    make(api, "gpu", namespace)
    monitor = Key("PodMonitor", namespace, "gpu")
    for _ in range(2):  # it comes again, too
        api.define(POD_MONITOR)
        until(lambda: api.get(monitor))
        assert len([key for key in api.made_in(namespace) if key.kind == "PodMonitor"]) == 1
        api.undefine(POD_MONITOR)
    api.define(POD_MONITOR)
    until(lambda: api.get(monitor))
    api.patch(Key("GPUExporter", namespace, "gpu"), {"spec": {"serviceMonitor": {"enabled": "off"}}})
    until(lambda: api.get(monitor) is None)
    api.undefine(POD_MONITOR)


def test_an_invalid_exporter_says_so_and_keeps_what_it_has(api: Api, operator: OperatorProcess, namespace: str) -> None:
    key = make(api, "gpu", namespace)
    before = versions(api.made_in(namespace))
    api.patch(key, {"spec": {"labels": {"podLabels": ["("]}}})  # no schema knows what a regular expression is
    until(lambda: is_seen(api, key))
    assert "spec.labels.podLabels[0]" in str((api.get(key) or {})["status"])
    assert versions(api.made_in(namespace)) == before


# at last: so many exporters are much to look at
@pytest.fixture(scope="module")
def edited(api: Api, operator: OperatorProcess) -> str:
    """A namespace with a GPUExporter for each edit."""
    api.add_namespace("edited")
    api.put(list_of_fields("mine", "edited"))
    keys = [key_of(api.put(exporter(name.lower().replace(".", "-"), "edited"))) for name in EDITS]
    for key in keys:
        until(lambda key=key: is_seen(api, key))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    return "edited"


@pytest.mark.parametrize("field", EDITS)
def test_an_edited_field_changes_as_little_as_can_be(
    api: Api, edited: str, operator: OperatorProcess, field: str
) -> None:
    spec, expected = EDITS[field]
    name = field.lower().replace(".", "-")
    key = Key("GPUExporter", edited, name)
    before = api.made_in(edited)
    api.patch(key, {"spec": spec})
    until(lambda: is_seen(api, key), why=lambda: operator.told[-3000:])
    after = api.made_in(edited)
    assert changed(before, after) == expected
    # and no other exporter's
    both = versions(before), versions(after)
    others = [{each: seen for each, seen in one.items() if not _is_of(each, name)} for one in both]
    assert others[0] == others[1]


def _is_of(key: Key, name: str) -> bool:
    return key.name in (name, f"{name}-counters", f"{name}-config", f"{name}-gpu-metrics") or key.name.endswith(
        f":{name}"
    )
