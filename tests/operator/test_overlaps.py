"""Two GPUExporters that choose the same nodes: the younger one leaves them to the older one."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.operator.exporters.overlaps import MOST_TERMS, both, elsewhere, shared
from tests.operator.made import Object
from tests.operator.specs import spec_of

LABELS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=3)
TAINT = {"key": "pool", "value": "a", "effect": "NoSchedule"}
A: Object = {"key": "pool", "operator": "Equal", "value": "a"}


def runs_on(affinity: Object, labels: Mapping[str, str]) -> bool:
    """As the scheduler reads it: a term that is empty matches no node."""
    required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return any(
        term.get("matchExpressions")
        and all(labels.get(each["key"]) not in each["values"] for each in term["matchExpressions"])
        for term in required["nodeSelectorTerms"]
    )


def matches(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return selector.items() <= labels.items()


# issue 15, line 16
@given(LABELS, st.lists(LABELS, min_size=1, max_size=4), LABELS)
def test_pods_go_where_no_older_exporter_selects(
    own: Mapping[str, str], others: Sequence[Mapping[str, str]], more: Mapping[str, str]
) -> None:
    labels = {**more, **own}
    affinity = elsewhere(own, others)
    terms = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    is_free = not any(matches(other, labels) for other in others)
    assert len(terms) <= MOST_TERMS
    assert runs_on(affinity, labels) == is_free or len(terms) == MOST_TERMS
    assert is_free or not runs_on(affinity, labels)


# issue 15, line 16
@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ({"a": "1"}, {"a": "1"}, {"a": "1"}),
        ({"a": "1"}, {"b": "2"}, {"a": "1", "b": "2"}),
        ({}, {"b": "2"}, {"b": "2"}),
        ({"a": "1", "b": "1"}, {"a": "2"}, None),
    ],
)
def test_selectors_may_choose_the_same_nodes(one: Object, other: Object, expected: Object | None) -> None:
    assert both(spec_of({"nodeSelector": one}), spec_of({"nodeSelector": other})) == expected


# issue 15, line 16
@pytest.mark.parametrize(
    ("taints", "one", "other", "is_shared"),
    [
        ([], [], [], True),
        ([TAINT], [A], [A], True),
        ([TAINT], [A], [], False),
        ([TAINT], [], [A], False),
        ([TAINT], [{**A, "value": "b"}], [A], False),
        ([TAINT], [{**A, "effect": "NoExecute"}], [A], False),
        ([TAINT], [{"key": "pool", "operator": "Exists", "effect": "NoSchedule"}], [{"operator": "Exists"}], True),
        ([TAINT | {"effect": "PreferNoSchedule"}], [], [], True),
        # a DaemonSet's pods are on such nodes, too
        ([{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}], [], [], True),
    ],
)
def test_a_node_is_shared_whose_taints_both_bear(
    taints: list[Object], one: list[Object], other: list[Object], is_shared: bool
) -> None:
    node: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"taints": taints}}
    found = shared(spec_of({"tolerations": one}), spec_of({"tolerations": other}), [node])
    assert found == (["a"] if is_shared else [])
