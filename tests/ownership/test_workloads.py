"""The workload that a pod's chain of controllers leads to, and the references that lead nowhere."""

import pytest

from exporter.model.pods import OwnerReference, PodInfo
from exporter.ownership.workloads import Workload, controller, is_object_name, is_top, read_owners, workload


def owner(kind: str, api_version: str, name: str = "x", *, is_controller: bool = True) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name=name, uid="u", is_controller=is_controller)


DEPLOYMENT = owner("Deployment", "apps/v1", "render")


def test_references_are_read_even_if_they_lack_something() -> None:
    listed = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "render", "uid": "u", "controller": True},
        "no reference",
        {},
    ]
    nothing = OwnerReference(api_version="", kind="", name="", uid="", is_controller=False)
    assert read_owners(listed) == (DEPLOYMENT, nothing)
    assert read_owners(None) == ()


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        ("apps/v1", "ReplicaSet", "render-5d5bc5cd68"),
        ("v1", "ReplicationController", "a"),
        ("a.b.example.com/v1beta1", "Job2", "a.b-c"),
        ("apps/v1", "x" * 63, "n" * 253),
        ("apps/v" + "1" * 62, "A", "0"),
    ],
)
def test_a_controller_of_a_form_that_kubernetes_allows(api_version: str, kind: str, name: str) -> None:
    its = owner(kind, api_version, name)
    assert controller([its]) == its


@pytest.mark.parametrize(
    ("api_version", "kind", "name"),
    [
        # a static pod is "controlled" by its node
        ("v1", "Node", "n1"),
        # the core group has no other version
        ("v2", "Pod", "a"),
        ("", "Pod", "a"),
        ("/v1", "Pod", "a"),
        ("Apps/v1", "Pod", "a"),
        ("apps/V1", "Pod", "a"),
        ("apps/v1-", "Pod", "a"),
        ("apps/" + "v" * 64, "Pod", "a"),
        ("a/b/v1", "Pod", "a"),
        ("apps/v1", "", "a"),
        ("apps/v1", "9s", "a"),
        ("apps/v1", "Pod/x", "a"),
        ("apps/v1", "x" * 64, "a"),
        ("apps/v1", "Pod", ""),
        ("apps/v1", "Pod", "../secrets"),
        ("apps/v1", "Pod", "n" * 254),
    ],
)
def test_a_reference_that_no_object_can_have_is_no_controller(api_version: str, kind: str, name: str) -> None:
    assert controller([owner(kind, api_version, name)]) is None
    # nor does it hide the one that is
    assert controller([owner(kind, api_version, name), DEPLOYMENT]) == DEPLOYMENT


def test_a_node_of_another_group_is_a_controller() -> None:
    its = owner("Node", "example.com/v1")
    assert controller([its]) == its


def test_an_owner_that_does_not_control_is_no_controller() -> None:
    assert controller([]) is None
    assert controller([owner("Job", "batch/v1", is_controller=False)]) is None
    assert controller([owner("Job", "batch/v1", is_controller=False), DEPLOYMENT]) == DEPLOYMENT


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", True), ("0", True), ("a-b", True), ("a.b", True), ("n" * 253, True),
        ("", False), ("-a", False), ("a-", False), ("a..b", False), (".a", False), ("A", False), ("a/b", False),
        ("n" * 254, False), ("a\n", False),
    ],
)  # fmt: skip
def test_the_names_that_objects_have(text: str, expected: bool) -> None:
    assert is_object_name(text) is expected


@pytest.mark.parametrize(
    ("kind", "api_version", "expected"),
    [
        ("Deployment", "apps/v1", True),
        ("StatefulSet", "apps/v1", True),
        ("DaemonSet", "apps/v1beta2", True),
        ("CronJob", "batch/v1", True),
        ("Rollout", "argoproj.io/v1alpha1", True),
        # these may have one above them
        ("ReplicaSet", "apps/v1", False),
        ("Job", "batch/v1", False),
        ("Deployment", "example.com/v1", False),
        ("Deployment", "v1", False),
    ],
)
def test_where_the_walk_ends(kind: str, api_version: str, expected: bool) -> None:
    assert is_top(owner(kind, api_version)) is expected


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, "render"),
        ({"app": "shop"}, "shop"),
        ({"app": "shop", "team": "a"}, "a"),
        ({"app": "shop", "team": ""}, "shop"),
        ({"other": "shop"}, "render"),
    ],
)
def test_a_label_may_name_the_workload(labels: dict[str, str], expected: str) -> None:
    pod = PodInfo(namespace="ml", name="render-nzr67", uid="u", labels=labels)
    assert workload(pod, DEPLOYMENT, ("team", "app")) == Workload(expected, "Deployment")
    assert workload(pod, None, ("team", "app")) == Workload("render-nzr67" if expected == "render" else expected, "Pod")
