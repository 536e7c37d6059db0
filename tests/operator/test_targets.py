"""What the API says of a GPUAutoscaler's target."""

from typing import Any

import pytest
from hypothesis import given

from exporter.errors import Trouble
from exporter.operator.autoscalers.troubles import Resource, resource_of, why_not
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


def test_what_keeps_a_target_from_being_scaled() -> None:
    def why(resource: Resource | None, item: Any) -> str:
        return str(why_not(ref("ReplicaSet"), "ml", resource, item) or "")

    sets = Resource("replicasets", is_scalable=True)
    assert why(None, None).startswith("spec.scaleTargetRef.kind: the API serves no ReplicaSet")
    assert "has no subresource scale" in why(Resource("replicasets", is_scalable=False), {})
    assert "there is no ReplicaSet ml/trainer" in why(sets, None)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x", "uid": "u", "controller": True}
    owners = [{**owner, "controller": False, "name": "y"}, owner]
    assert "belongs to Deployment x" in why(sets, {"metadata": {"ownerReferences": owners}})
    assert why(sets, {}) == ""


@given(JSON, JSON)
def test_odd_answers_break_nothing(listed: Any, item: Any) -> None:
    for answer in (listed, {"resources": listed}, {"resources": [listed, *APPS["resources"]]}):
        assert isinstance(why_not(ref(), "ml", resource_of(ref(), answer), item), Trouble | None)
    scalable = Resource("deployments", is_scalable=True)
    assert why_not(ref(), "ml", scalable, {"metadata": {"ownerReferences": item}}) is None
