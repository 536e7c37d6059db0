"""What the API says of a GPUAutoscaler's target."""

from typing import Any

import pytest
from hypothesis import given

from exporter.operator.autoscalers.troubles import (
    LiveTarget,
    Resource,
    resource_of,
    target_of,
    why_not,
)
from exporter.operator.objects.resources import ScaleTarget
from tests.operator.autoscaling import JSON

APPS: dict[str, Any] = {
    "kind": "APIResourceList",
    "groupVersion": "apps/v1",
    "resources": [
        {"name": "daemonsets", "namespaced": True, "kind": "DaemonSet"},
        {"name": "daemonsets/status", "namespaced": True, "kind": "DaemonSet"},
        # the subresource may come first
        {"name": "deployments/scale", "namespaced": True, "kind": "Scale", "group": "autoscaling", "version": "v1"},
        {"name": "deployments/status", "namespaced": True, "kind": "Deployment"},
        {"name": "deployments", "namespaced": True, "kind": "Deployment"},
    ],
}


def ref(kind: str = "Deployment", version: str = "apps/v1") -> ScaleTarget:
    return ScaleTarget(api_version=version, kind=kind, name="trainer")


@pytest.mark.parametrize(
    ("kind", "resource"),
    [
        ("Deployment", Resource("deployments", is_scalable=True)),
        ("DaemonSet", Resource("daemonsets", is_scalable=False)),
        ("Deploymnt", None),
        # it is what the subresource takes, and no kind of objects
        ("Scale", None),
    ],
)
def test_a_kind_is_looked_up_in_what_its_group_serves(kind: str, resource: Resource | None) -> None:
    assert resource_of(ref(kind), APPS) == resource


def test_what_belongs_to_no_namespace_cannot_be_a_target() -> None:
    nodes = {"resources": [{"name": "nodes", "namespaced": False, "kind": "Node"}]}
    assert resource_of(ref("Node", "v1"), nodes) is None


def test_a_path_of_the_api_is_never_made_of_somebody_elses_text() -> None:
    odd = {"resources": [{"name": "../../secrets", "namespaced": True, "kind": "Deployment"}]}
    assert resource_of(ref(), odd) is None


def test_what_there_is_of_a_target() -> None:
    deployments = Resource("deployments", is_scalable=True)
    assert target_of(None, None).state == "no_kind"
    assert target_of(Resource("daemonsets", is_scalable=False), {}).state == "not_scalable"
    assert target_of(deployments, None).state == "missing"
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u", "controller": True}
    found = target_of(deployments, {"metadata": {"ownerReferences": [{**owner, "controller": False}, owner]}})
    assert (found.state, found.owner and found.owner.name) == ("found", "x")


@given(JSON, JSON)
def test_odd_answers_break_nothing(listed: Any, item: Any) -> None:
    for answer in (listed, {"resources": listed}, {"resources": [listed, *APPS["resources"]]}):
        target = target_of(resource_of(ref(), answer), item)
        assert isinstance(target, LiveTarget)
        why_not(ref(), target, "ml")
    assert (
        target_of(Resource("deployments", is_scalable=True), {"metadata": {"ownerReferences": item}}).state == "found"
    )
