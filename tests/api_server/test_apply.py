"""Server-side apply, as what holds for every object."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.api_client import NAMESPACE, Client
from tests.support.api_server.answers import Refused
from tests.support.api_server.fields import fields_of, from_fields_v1, to_fields_v1
from tests.support.api_server.kinds import BUILT_IN, Kind
from tests.support.api_server.managers import Managed, read_managed, write_managed
from tests.support.api_server.server_side_apply import applier, apply

DAEMON_SET: Kind = next(kind for kind in BUILT_IN if kind.name == "DaemonSet")
_WORDS = st.sampled_from("abc")
_VALUES = st.sampled_from(["x", "y"])
_ENV = st.dictionaries(_WORDS, _VALUES, min_size=1, max_size=3).map(
    lambda of: [{"name": name, "value": value} for name, value in of.items()]
)
_CONTAINERS = st.dictionaries(_WORDS, st.fixed_dictionaries({}, optional={"image": _VALUES, "env": _ENV}), max_size=2)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.dictionaries(_WORDS, _VALUES, max_size=3))
    containers = [{"name": name, **more} for name, more in draw(_CONTAINERS).items()]
    spec: dict[str, Any] = {"template": {"spec": {"containers": containers}}} if containers else {}
    if draw(st.booleans()):
        spec["revisionHistoryLimit"] = draw(st.integers(0, 2))
    metadata = {"name": "a", **({"labels": labels} if labels else {})}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, **({"spec": spec} if spec else {})}


def applied(live: Any, item: Any, managed: Managed, name: str, *, force: bool = True) -> tuple[Any, Managed]:
    who = applier(name, "")
    return apply(live, item, managed, DAEMON_SET.shape, manager=who, time="2026-01-01T00:00:00Z", force=force)


EMPTY = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a"}}


@given(objects(), objects())
def test_an_apply_again_changes_nothing_and_conflicts_with_nobody(other: Any, item: Any) -> None:
    live, managed = applied(EMPTY, other, {}, "other")
    live, managed = applied(live, item, managed, "tests")
    assert applied(live, item, managed, "tests", force=False) == (live, managed)


@given(objects(), objects())
def test_what_is_applied_is_there_and_what_is_no_longer_applied_is_not(former: Any, item: Any) -> None:
    live, managed = applied(EMPTY, former, {}, "tests")
    live, managed = applied(live, item, managed, "tests")
    assert set(fields_of(live, DAEMON_SET.shape)) == set(fields_of(item, DAEMON_SET.shape))
    assert applied(live, EMPTY, managed, "tests") == (EMPTY, {})


@given(objects(), objects())
def test_who_leaves_takes_nothing_that_another_owns(other: Any, item: Any) -> None:
    alone, _ = applied(EMPTY, other, {}, "other")
    live, managed = applied(EMPTY, item, {}, "tests")
    live, managed = applied(live, other, managed, "other")
    live, _ = applied(live, EMPTY, managed, "tests")
    assert _sorted(live) == _sorted(alone)


@given(objects(), objects())
def test_conflicts_are_the_fields_that_another_owns_with_another_value(other: Any, item: Any) -> None:
    live, managed = applied(EMPTY, other, {}, "other")
    theirs, ours = dict(_leaves(other)), dict(_leaves(item))
    wanted = {path for path in theirs.keys() & ours.keys() if theirs[path] != ours[path]}
    if not wanted:
        applied(live, item, managed, "tests", force=False)
        return
    with pytest.raises(Refused, match=f"Apply failed with {len(wanted)} conflict") as refused:
        applied(live, item, managed, "tests", force=False)
    assert isinstance(refused.value.body, dict)
    assert len(refused.value.body["details"]["causes"]) == len(wanted)


@given(objects(), objects())
def test_managers_are_written_as_they_are_read(first: Any, second: Any) -> None:
    live, managed = applied(EMPTY, first, {}, "first")
    _, managed = applied(live, second, managed, "second")
    entries = json.loads(json.dumps(write_managed(managed)))
    assert read_managed({"metadata": {"managedFields": entries}}) == managed
    for owned in managed.values():
        assert frozenset(from_fields_v1(to_fields_v1(owned.fields))) == owned.fields


def _leaves(value: Any, path: str = "") -> Any:
    """The values of an object by path, with the items of lists by their names."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, f"{path}[{item['name']}]")
    else:
        yield path, value


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(inner) for name, inner in value.items()}
    return sorted((_sorted(item) for item in value), key=json.dumps) if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("kind", "path", "item", "owned"),
    [
        ("Service", "spec.ports", [{"port": 80}], 'k:{"port":80,"protocol":"TCP"}'),
        ("ServiceAccount", "imagePullSecrets", [{"name": "a"}], ""),
        ("DaemonSet", "spec.template.spec.imagePullSecrets", [{"name": "a"}], 'k:{"name":"a"}'),
        ("DaemonSet", "spec.template.spec.nodeSelector", {"a": "b"}, ""),
        ("DaemonSet", "spec.template.spec.tolerations", [{"operator": "Exists"}], ""),
        ("Role", "rules", [{"verbs": ["get"]}], ""),
        ("ConfigMap", "data", {"a": "b"}, "f:a"),
    ],
)
def test_what_is_one_value_and_what_has_parts(kind: str, path: str, item: Any, owned: str) -> None:
    shape = next(of for of in BUILT_IN if of.name == kind).shape
    for name in reversed(path.split(".")):
        item = {name: item}
    paths = list(fields_of(item, shape))
    words = tuple(f"f:{name}" for name in path.split("."))
    assert ((*words, owned) if owned else words) in paths
    assert any(len(found) > len(words) for found in paths) == bool(owned)


async def test_conflicts_of_several_managers_are_told_by_manager(client: Client) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/a"
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    await client.apply(path, {**item, "data": {"a": "1", "b": "1"}}, manager="first")
    await client.apply(path, {**item, "data": {"c": "1"}}, manager="second")
    wanted = {**item, "data": {"a": "2", "b": "2", "c": "2"}}
    status, answer = await client.ask("PATCH", f"{path}?fieldManager=x", wanted, kind="application/apply-patch+yaml")
    assert status == 409
    said = 'conflicts with "first":\n- .data.a\n- .data.b\nconflicts with "second":\n- .data.c'
    assert answer["message"] == f"Apply failed with 3 conflicts: {said}"
