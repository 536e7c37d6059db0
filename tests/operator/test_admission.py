"""The ValidatingAdmissionPolicy of deploy/operator/operator.yaml: it takes what the operator writes, and no more."""

from copy import deepcopy
from functools import cache
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from exporter.operator.objects.kinds import BY_NAME, GPU_AUTOSCALER, GPU_EXPORTER
from tests.operator.autoscaling import applied
from tests.operator.test_rights import named
from tests.support.manifests import objects_of
from tests.support.places import ROOT

Object = dict[str, Any]
POLICY = named("ValidatingAdmissionPolicy", "pod-gpu-metrics-operator")["spec"]
OURS = "system:serviceaccount:pod-gpu-metrics:pod-gpu-metrics-operator"
GOLDENS = sorted((ROOT / "tests" / "golden" / "operator").glob("*.yaml"))
WRITTEN = [item for path in GOLDENS for item in objects_of(path)] + [applied(keda=keda) for keda in (True, False)]


@cache
def program(expression: str) -> Any:
    environment = celpy.Environment()
    return environment.program(environment.compile(expression))


def evaluated(expression: str, **given: Any) -> Any:
    return program(expression).evaluate({name: json_to_cel(value) for name, value in given.items()})


def refusals(item: Object | None, before: Object | None, user: str = OURS) -> list[str]:
    """What the policy says against a write of the operator, as an API server asks it."""
    resource = BY_NAME[(item or before or {})["kind"]].plural
    verb = "CREATE" if before is None else "DELETE" if item is None else "UPDATE"
    about = {"operation": verb, "resource": {"resource": resource}, "userInfo": {"username": user}}
    given = {"object": item, "oldObject": before, "request": about}
    if not all(evaluated(each["expression"], **given) for each in POLICY["matchConditions"]):
        return []
    variables = {each["name"]: evaluated(each["expression"], **given) for each in POLICY["variables"]}
    return [
        each["message"]
        for each in POLICY["validations"]
        if not evaluated(each["expression"], **given, variables=variables)
    ]


def changed(kind: str, *path: str | int, to: object) -> Object:
    """Something that the operator writes, otherwise than it writes it."""
    item = deepcopy(next(each for each in WRITTEN if each["kind"] == kind))
    at: Any = item
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = to
    return item


POD = ("spec", "template", "spec")
SECRET = {"name": "x", "secret": {"secretName": "x"}}
HOSTILE: dict[str, tuple[Object, str]] = {
    "a pod under another account": (
        changed("DaemonSet", *POD, "serviceAccountName", to="clusterrole-aggregation-controller"),
        "run under the ServiceAccount of their GPUExporter",
    ),
    "a Secret as a volume": (changed("DaemonSet", *POD, "volumes", to=[SECRET]), "no Secrets"),
    "a token as a volume": (
        changed("DaemonSet", *POD, "volumes", to=[{"name": "x", "projected": {"sources": []}}]),
        "no Secrets",
    ),
    "a Secret in the environment": (
        changed("DaemonSet", *POD, "containers", 0, "env", to=[{"name": "X", "valueFrom": {"secretKeyRef": {}}}]),
        "no Secrets",
    ),
    "Secrets as the environment": (
        changed("DaemonSet", *POD, "initContainers", 0, "envFrom", to=[{"secretRef": {}}]),
        "no Secrets",
    ),
    "a binding of another account": (
        changed("ClusterRoleBinding", "subjects", 0, "name", to="default"),
        "binds the exporters' ClusterRole alone",
    ),
    "a binding of a user": (
        changed("ClusterRoleBinding", "subjects", 0, "kind", to="User"),
        "binds the exporters' ClusterRole alone",
    ),
    "a binding of another role": (
        changed("ClusterRoleBinding", "roleRef", "name", to="cluster-admin"),
        "binds the exporters' ClusterRole alone",
    ),
    "an object of nobody": (changed("ConfigMap", "metadata", "ownerReferences", to=[]), "belongs to a GPUExporter"),
    "an object without its label": (changed("Service", "metadata", "labels", to={}), "has its label"),
}


# issue 15, line 14
@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_the_policy_takes_what_the_operator_writes(number: int) -> None:
    item = WRITTEN[number]
    without_label = {**item, "metadata": {**item["metadata"], "labels": {}}}
    without_owner = {**item, "metadata": {name: item["metadata"][name] for name in ("name", "labels")}}
    drifted = without_owner if item["kind"] == "ClusterRoleBinding" else without_label
    for pair in ((item, None), (item, item), (item, without_owner), (item, drifted), (None, item)):
        assert refusals(*pair) == []


# issue 15, line 14
@pytest.mark.parametrize("what", HOSTILE)
def test_the_policy_refuses_what_the_operator_never_writes(what: str) -> None:
    item, expected = HOSTILE[what]
    (why,) = refusals(item, None)
    assert expected in why
    assert refusals(item, None, "system:serviceaccount:kube-system:daemon-set-controller") == []


# issue 15, line 14
@pytest.mark.parametrize("item", [None, next(each for each in WRITTEN if each["kind"] == "ClusterRoleBinding")])
def test_the_policy_keeps_bindings_of_others_from_the_operator(item: Object | None) -> None:
    theirs = {"kind": "ClusterRoleBinding", "metadata": {"name": "cluster-admin", "labels": {"a": "b"}}}
    assert refusals(item, theirs) == ["the operator changes and deletes only what it made"]


# issue 30, "rights are added only with it"
def test_another_policy_keeps_its_events_to_its_own_kinds() -> None:
    policy = named("ValidatingAdmissionPolicy", "pod-gpu-metrics-operator-events")["spec"]
    binding = named("ValidatingAdmissionPolicyBinding", "pod-gpu-metrics-operator-events")["spec"]
    assert binding == {"policyName": "pod-gpu-metrics-operator-events", "validationActions": ["Deny"]}
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert "events.k8s.io" in rule["apiGroups"]
    assert (rule["resources"], rule["operations"]) == (["events"], ["CREATE", "UPDATE"])
    (condition,), (validation,) = policy["matchConditions"], policy["validations"]
    for user, is_asked in ((OURS, True), ("system:node:a", False)):
        assert bool(evaluated(condition["expression"], request={"userInfo": {"username": user}})) == is_asked
    for kind in (GPU_EXPORTER, GPU_AUTOSCALER):
        assert evaluated(validation["expression"], object={"regarding": {"apiVersion": kind.api_version}})
    for event in ({"regarding": {"apiVersion": "v1", "kind": "Pod"}}, {"regarding": {"kind": "Pod"}}, {"note": "x"}):
        assert not evaluated(validation["expression"], object=event)


# issue 15, line 14
def test_the_policy_knows_all_that_the_operator_may_write() -> None:
    (rule,) = POLICY["matchConstraints"]["resourceRules"]
    assert {BY_NAME[item["kind"]].plural for item in WRITTEN} == {*rule["resources"]}
    assert {BY_NAME[item["kind"]].group for item in WRITTEN} == {*rule["apiGroups"]}
