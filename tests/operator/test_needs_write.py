"""Whether an apply is needed, by what the API server says of the fields that the operator owns."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.objects.kinds import OPERATOR
from exporter.operator.objects.needs_write import fingerprint, is_as_wanted
from tests.support import quick_yaml
from tests.support.places import DATA

RECORDED = DATA / "kubernetes-1.36" / "operator"
Object = dict[str, Any]


def recorded() -> tuple[Object, Object]:
    """A Deployment as it was applied, and as a real API server had it then, with its defaults and its status."""
    wanted = quick_yaml.load((RECORDED / "51-apply-deployment-unchanged.request.yaml").read_text())
    live = (RECORDED / "51-apply-deployment-unchanged.json").read_text()
    live = json.loads(live.replace('"manager":"operator"', f'"manager":"{OPERATOR}"'))
    wanted["metadata"]["ownerReferences"] = live["metadata"]["ownerReferences"]  # the recorder wrote another uid there
    return wanted, live


def changed(item: Object, path: str, value: Any) -> Object:
    """A copy with something else at a path; None takes it away."""
    made = copy.deepcopy(item)
    at: Any = made
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in steps:
        at = at[step]
    if value is None:
        del at[last]
    else:
        at[last] = value
    return made


def test_what_a_real_api_server_has_is_as_it_was_applied() -> None:
    assert is_as_wanted(*recorded())


CONTAINER = "spec/template/spec/containers/0"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec/replicas", 2),
        ("spec/replicas", None),  # a field that is wanted no longer goes back to its default
        ("spec/minReadySeconds", 5),
        (f"{CONTAINER}/image", "localhost/box:2"),
        (f"{CONTAINER}/name", "other"),
        (f"{CONTAINER}/env", [{"name": "A", "value": "b"}]),
        ("spec/template/metadata/labels/app", "other"),
        ("spec/template/metadata/labels/more", "x"),
        ("spec/selector/matchLabels/more", "x"),
        ("metadata/labels", {"a": "b"}),
    ],
)
def test_another_wish_is_applied(path: str, value: Any) -> None:
    wanted, live = recorded()
    assert not is_as_wanted(changed(wanted, path, value), live)


@pytest.mark.parametrize(
    ("path", "value", "same"),
    [
        ("spec/replicas", 2, False),
        (f"{CONTAINER}/image", "localhost/box:2", False),
        (f"{CONTAINER}/image", None, False),
        ("spec/template/metadata/labels", {}, False),
        ("spec/selector/matchLabels/more", "x", False),  # one field: what is added to it changes it
        ("metadata/ownerReferences", [], False),
        ("metadata/annotations/more", "x", True),
        ("spec/template/metadata/labels/more", "x", True),
        ("spec/paused", True, True),
        (f"{CONTAINER}/tty", True, True),
        ("status", {"replicas": 1}, True),
        ("metadata/resourceVersion", "1", True),
        ("metadata/managedFields", [], False),
        ("metadata/managedFields", "odd", False),
        ("metadata/managedFields/0/fieldsV1", {"f:spec": "odd"}, False),
    ],
)
def test_what_somebody_changed(path: str, value: Any, same: bool) -> None:
    wanted, live = recorded()
    assert is_as_wanted(wanted, changed(live, path, value)) is same


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(fields=JSON, spec=JSON)
def test_nothing_that_comes_from_there_is_trusted(fields: Any, spec: Any) -> None:
    wanted, live = recorded()
    live["metadata"]["managedFields"][0]["fieldsV1"] = fields
    assert is_as_wanted(wanted, live) is False
    assert is_as_wanted(wanted, {**recorded()[1], "spec": spec}) is False


def _applied(spec: Object, fields: Object) -> tuple[Object, Object]:
    entry = {"manager": OPERATOR, "operation": "Apply", "fieldsV1": {"f:spec": fields}}
    about = {"name": "a", "namespace": "b", "managedFields": [entry]}
    wanted = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "b"}, "spec": spec}
    return wanted, {**wanted, "metadata": about}


@pytest.mark.parametrize(
    ("wanted", "live", "same"),
    [
        ("1000m", "1", True),
        ("1Gi", "1024Mi", True),
        ("0.5", "500m", True),
        ("1G", "1Gi", False),
        ("100m", "odd", False),
    ],
)
def test_amounts_are_compared_as_amounts(wanted: str, live: str, same: bool) -> None:
    item, there = _applied({"limits": {"cpu": wanted}}, {"f:limits": {"f:cpu": {}}})
    assert is_as_wanted(item, changed(there, "spec/limits/cpu", live)) is same


def test_the_status_is_no_part_of_what_an_apply_changes() -> None:
    wanted, live = recorded()
    wanted = changed(wanted, "spec/replicas", "one")  # which no API server would take, and none writes like that
    before = fingerprint(wanted, live)
    assert fingerprint(wanted, changed(live, "status", {})) == before
    assert fingerprint(wanted, changed(live, "spec/replicas", 3)) != before
    assert fingerprint(changed(wanted, "spec/replicas", "two"), live) != before
