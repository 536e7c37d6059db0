"""What an apply changes, and whose change it undoes: real objects as an API server said them, and made up ones."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.objects.change_report import ObjectChange, called, change_of
from exporter.operator.objects.kinds import OPERATOR
from tests.operator.made import JUNK, Object, hostile
from tests.support import quick_yaml
from tests.support.places import DATA

RECORDED = DATA / "kubernetes-1.36" / "operator"


def recorded(name: str) -> Object:
    """As the API server said it, with this operator in the place of the recorder's."""
    text = (RECORDED / name).read_text().replace('"manager":"operator"', f'"manager":"{OPERATOR}"')
    found = json.loads(text) if name.endswith(".json") else quick_yaml.load(text)
    assert isinstance(found, dict)
    return found


def test_what_was_not_there_is_created() -> None:
    assert change_of(recorded("50-apply-deployment.request.yaml"), None) == (
        "created",
        "Deployment main-exporter",
        (),
        (),
    )


def test_what_somebody_edited_is_named_with_who_it_was() -> None:
    change = change_of(recorded("12-apply-changed.request.yaml"), recorded("13-merge-patch-by-other.json"))
    assert change == ("updated", "GPUExporter main", ("spec.intervalSeconds",), ("kubectl-edit",))


def test_an_edit_by_way_of_a_subresource_counts() -> None:
    """`kubectl scale` writes to the subresource scale, under which the manager of the field stands."""
    change = change_of(recorded("50-apply-deployment.request.yaml"), recorded("65-deployment-get.json"))
    assert change == ("updated", "Deployment main-exporter", ("spec.replicas",), ("recorder",))


def test_an_object_that_is_as_applied_has_no_difference() -> None:
    """Defaults that the API server added are none."""
    change = change_of(recorded("50-apply-deployment.request.yaml"), recorded("50-apply-deployment.json"))
    assert (change.fields, change.by) == ((), ())


def edited(path: str, value: Any, *, manager: str, owned: Object) -> tuple[Object, Object]:
    """What is wanted of the recorded Deployment, and what is there once somebody set the container's `path`."""
    wanted, there = recorded("50-apply-deployment.request.yaml"), recorded("50-apply-deployment.json")
    there["spec"]["template"]["spec"]["containers"][0][path] = value
    fields = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"exporter"}': owned}}}}}
    there["metadata"]["managedFields"].append({"manager": manager, "operation": "Update", "fieldsV1": fields})
    return wanted, there


def test_a_container_is_found_by_its_name() -> None:
    wanted, there = edited("image", "evil:2", manager="kubectl-set", owned={"f:image": {}})
    change = change_of(wanted, there)
    assert change.fields == ("spec.template.spec.containers[exporter].image",)
    assert change.by == ("kubectl-set",)
    assert str(change) == "Deployment main-exporter (spec.template.spec.containers[exporter].image)"


def test_what_the_operator_itself_wants_otherwise_now_is_nobodys_edit() -> None:
    wanted, there = recorded("50-apply-deployment.request.yaml"), recorded("50-apply-deployment.json")
    wanted["spec"]["template"]["spec"]["containers"][0]["image"] = "localhost/box:2"
    change = change_of(wanted, there)
    assert (change.fields, change.by) == (("spec.template.spec.containers[exporter].image",), ())


def test_an_edit_beside_a_change_of_our_own_is_told_alone() -> None:
    wanted, there = edited("image", "evil:2", manager="kubectl-set", owned={"f:image": {}})
    wanted["spec"]["replicas"] = 5
    assert change_of(wanted, there).fields == ("spec.template.spec.containers[exporter].image",)


@pytest.mark.parametrize(
    ("key", "item"),
    [
        ('k:{"containerPort":9400,"protocol":"TCP"}', {"containerPort": 9400}),
        ('k:{"mountPath":"/a"}', {"mountPath": "/a"}),
        ('k:{"name":"X"}', {"name": "X", "value": "1"}),
    ],
)
def test_items_of_lists_by_the_keys_that_the_api_has(key: str, item: Object) -> None:
    wanted, there = recorded("50-apply-deployment.request.yaml"), recorded("50-apply-deployment.json")
    wanted["spec"]["template"]["spec"]["containers"][0]["list"] = [{**item, "part": "ours"}]
    owned: Object = {"f:list": {key: {".": {}, "f:part": {}}}}
    there["spec"]["template"]["spec"]["containers"][0]["list"] = [{**item, "part": "theirs", "protocol": "TCP"}]
    fields = {"f:spec": {"f:template": {"f:spec": {"f:containers": {'k:{"name":"exporter"}': owned}}}}}
    there["metadata"]["managedFields"].append({"manager": "them", "fieldsV1": fields})
    assert change_of(wanted, there).by == ("them",)


# issue 15, line 27: a mutant of `_paired` lived, which took the items of both for parts with keys
@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        ([{"name": "a"}, {"name": "b"}], [{"name": "a"}, {"name": "a"}]),
        ([{"name": "a"}, {"name": "b"}], [{"name": "a"}, {"value": "b"}]),
        ([{"name": "a"}, {"name": "a"}], [{"name": "a"}, {"name": "b"}]),
        ([{"value": "a"}, {"value": "b"}], [{"value": "a"}, {"value": "c"}]),
    ],
)
def test_a_list_whose_items_no_key_tells_apart_differs_as_a_whole(wanted: list[Object], live: list[Object]) -> None:
    about = {"kind": "X", "metadata": {"name": "x"}}
    assert change_of({**about, "spec": {"list": wanted}}, {**about, "spec": {"list": live}}).fields == ("spec.list",)


def test_what_is_owned_as_a_whole_is_all_theirs() -> None:
    wanted, there = recorded("50-apply-deployment.request.yaml"), recorded("50-apply-deployment.json")
    there["spec"]["selector"]["matchLabels"]["app"] = "other"
    there["metadata"]["managedFields"].append({"manager": "them", "fieldsV1": {"f:spec": {"f:selector": {}}}})
    change = change_of(wanted, there)
    assert (change.fields, change.by) == (("spec.selector.matchLabels.app",), ("them",))


def test_many_fields_are_not_all_named() -> None:
    assert str(ObjectChange("updated", "ConfigMap x", tuple(map(str, range(9))))) == (
        "ConfigMap x (0, 1, 2, 3, 4, 5 and 3 more)"
    )


def test_an_object_is_called_by_its_kind_and_name() -> None:
    assert called({"kind": "PodMonitor", "metadata": {"name": "gpu"}}) == "PodMonitor gpu"


@given(there=hostile(recorded("65-deployment-get.json"), recorded("50-apply-deployment.json")), part=JUNK)
def test_whatever_is_there_it_is_told(there: Object, part: object) -> None:
    wanted = copy.deepcopy(recorded("50-apply-deployment.request.yaml"))
    wanted["spec"]["template"]["spec"]["containers"][0]["args"] = part
    change = change_of(wanted, there)
    assert change.what == "Deployment main-exporter"
    assert len(change.fields) <= 100
    assert len(change.by) <= 5
    assert str(change).isprintable()


@given(st.integers(1, 400))
def test_what_is_very_deep_ends(depth: int) -> None:
    wanted: Object = {"kind": "X", "metadata": {"name": "x"}}
    there: Object = {"metadata": {"name": "x"}}
    for root, leaf in ((wanted, 1), (there, 2)):
        at = root
        for _ in range(depth):
            at = at.setdefault("a", {})
        at["end"] = leaf
    assert len(change_of(wanted, there).fields) == 1
