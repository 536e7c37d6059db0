"""Whose an object is, by what whoever made it wrote into it: a name becomes a path of the API, so it has to be one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from exporter.operator.objects.kinds import (
    BY_NAME,
    CUSTOM_NAMES,
    FOR_ANNOTATION,
    GPU_EXPORTER,
    INSTANCE_LABEL,
    Key,
    whose,
)
from exporter.operator.work_queue import EVERYTHING
from tests.operator.made import Object

MINE = Key("GPUExporter", "ml", "gpu")
SERVER = "https://10.0.0.1"


def controlled(by: str, kind: str = "GPUExporter", namespace: str = "ml") -> Object:
    owner = {"apiVersion": GPU_EXPORTER.api_version, "kind": kind, "name": by, "uid": "u", "controller": True}
    return {"metadata": {"name": "x", "namespace": namespace, "ownerReferences": [owner]}}


def annotated(value: str) -> Object:
    return {"metadata": {"name": "x", "annotations": {FOR_ANNOTATION: value}}}


def labelled(name: str, namespace: str = "ml") -> Object:
    return {"metadata": {"name": "x", "namespace": namespace, "labels": {INSTANCE_LABEL: name}}}


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        (controlled("gpu"), [MINE]),
        (controlled("gpu", "GPUAutoscaler"), [MINE._replace(kind="GPUAutoscaler")]),
        (annotated("ml/gpu"), [MINE]),
        (labelled("gpu"), [MINE, MINE._replace(kind="GPUAutoscaler")]),
        # a GPUAutoscaler read as a GPUExporter would be one with every default: root on the nodes
        (controlled("../gpuautoscalers/mine"), []),
        (annotated("ml/../gpuautoscalers/mine"), []),
        (annotated("../gpu"), []),
        # issue 15, line 15: a ConfigMap of one namespace names nothing of another one
        ({"metadata": {**annotated("ml/gpu")["metadata"], "namespace": "theirs"}}, []),
        (annotated("ml/gpu?watch=1"), []),
        (labelled("gpu", ""), []),
        # what is counted by kind has no other kinds
        (controlled("gpu", "Anything"), []),
        (controlled("gpu", ""), []),
    ],
)
def test_an_object_names_only_what_there_can_be(item: Object, expected: list[Key]) -> None:
    assert whose(item) == expected


ODD = st.one_of(
    st.sampled_from(["gpu", "ml", "..", ".", "", "a/b", "../a", "a?b", "a#b", "a%2e", "A", "GPUExporter", "a..b"]),
    st.text(max_size=8),
)


@given(name=ODD, namespace=ODD, kind=ODD, value=st.one_of(st.none(), ODD))
def test_no_name_leads_to_another_path(name: str, namespace: str, kind: str, value: Any) -> None:
    for item in (controlled(name, kind, namespace), annotated(f"{namespace}/{name}"), labelled(name, namespace)):
        item["metadata"].setdefault("annotations", {})["odd"] = value
        for key in whose(item):
            assert key.kind in CUSTOM_NAMES
            path = BY_NAME[key.kind].path(key.namespace, key.name)
            url = URL(SERVER + path)
            assert (url.path, url.query_string, url.fragment) == (path, "", "")
            assert path.count("/") == 7


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (MINE, "GPUExporter ml/gpu"),
        (Key("ClusterRoleBinding", "", "gpu"), "ClusterRoleBinding gpu"),
        (EVERYTHING, "everything"),
    ],
)
def test_a_key_is_written_as_people_write_it(key: Key, words: str) -> None:
    assert str(key) == words
