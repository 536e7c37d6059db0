"""The table of pods: what is kept while a kubelet starts, and what a name means."""

import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter._gen import pods_pb2 as messages
from exporter.errors import Malformed
from exporter.model.pods import CUT, MOST_ANNOTATION_CHARS, PodContainer, PodInfo
from exporter.sources.kubelet.kubelet_pods import parse_pod
from exporter.sources.kubernetes.node_objects import read_pod
from exporter.sources.node_pods import CATCH_UP_SECONDS, GRACE_SECONDS, MOST_GONE, MOST_PODS, PodTable


def pod(name: str, uid: str = "", **changes: Any) -> PodInfo:
    return replace(PodInfo(namespace="ml", name=name, uid=uid or f"uid-{name}", labels={}, phase="Running"), **changes)


def after_sync(*pods: PodInfo) -> PodTable:
    """A table that a running kubelet has told all its pods, at 0."""
    table = PodTable(max_silence_seconds=600.0)
    table.open_stream()
    for found in pods:
        table.put(found, now=0.0)
    table.end_sync(now=0.0)
    return table


def names(table: PodTable, now: float) -> set[str]:
    return {name for _, name in table.by_name(now=now)}


A, B, STATIC = pod("a"), pod("b"), pod("s", is_static=True)


# issue 7, line 2
def test_a_stream_that_says_that_this_is_all_and_has_told_of_none() -> None:
    table = after_sync(A, B)
    table.open_stream()
    table.end_sync(now=10.0)
    assert names(table, 10.0) == names(table, 609.9) == {"a", "b"}
    assert names(table, 610.0) == set(), "the bound"


# issue 7, line 2
def test_from_the_first_pod_on_the_others_have_ten_seconds() -> None:
    table = after_sync(A, B)
    table.open_stream()
    table.end_sync(now=10.0)
    table.put(A, now=50.0)  # the API server was away
    assert names(table, 50.0 + GRACE_SECONDS - 0.1) == {"a", "b"}
    assert names(table, 50.0 + GRACE_SECONDS) == {"a"}


# issue 7, line 2
def test_what_is_told_of_on_the_new_stream_is_believed_at_once() -> None:
    table = after_sync(A, B, pod("c"))
    table.open_stream()
    table.end_sync(now=10.0)
    table.put(A, now=11.0)
    table.remove(A.uid, now=11.5)
    table.remove(B.uid, now=11.6)
    assert names(table, 11.6) == {"c"}


# issue 7, line 2
def test_a_further_restart_does_not_begin_the_bound_anew() -> None:
    table = after_sync(A)
    for now in (10.0, 300.0, 550.0):
        table.open_stream()
        table.end_sync(now=now)
    assert names(table, 609.0) == {"a"}
    assert names(table, 610.0) == set()


# issue 7, line 2
def test_while_no_stream_is_open_nothing_is_forgotten() -> None:
    table = after_sync(A, B)
    table.open_stream()
    table.put(A, now=10.0)
    table.open_stream()  # the kubelet ended in the middle of telling, and is down for long
    assert names(table, 10_000.0) == {"a", "b"}


# issue 7, line 2
def test_static_pods_do_not_show_that_the_api_server_was_reached() -> None:
    table = after_sync(A, STATIC)
    table.open_stream()
    table.put(STATIC, now=10.0)
    table.end_sync(now=10.0)
    assert names(table, 300.0) == {"a", "s"}
    table.put(B, now=300.0)
    assert names(table, 310.0) == {"b", "s"}
    # where only static ones are awaited, they do
    table = after_sync(STATIC, pod("t", is_static=True))
    table.open_stream()
    table.put(STATIC, now=10.0)
    assert names(table, 20.0) == {"s"}


# issue 7, line 2
def test_a_list_is_believed_at_once_but_for_an_empty_one() -> None:
    table = PodTable(max_silence_seconds=600.0)
    table.replace([A, B], now=0.0)
    table.replace([A], now=1.0)
    assert names(table, 1.0) == {"a"}
    table.replace([], now=2.0)
    assert names(table, 601.9) == {"a"}
    assert names(table, 602.0) == set()
    table.replace([A], now=700.0)
    table.replace([], now=701.0)
    table.put(B, now=702.0)
    assert names(table, 711.9) == {"a", "b"}
    assert names(table, 712.0) == {"b"}


def test_a_list_that_cannot_be_read_to_its_end_tells_of_nobody() -> None:
    def broken() -> Iterator[PodInfo]:
        yield A
        raise Malformed("garbage", "a pod that is none", remedy="nothing")

    table = after_sync(A, B)
    with pytest.raises(Malformed, match="a pod that is none"):
        table.replace(broken(), now=1.0)
    assert names(table, 1000.0) == {"a", "b"}


# issue 7, line 42
def test_a_restarted_kubelet_tells_of_ended_pods_that_they_are_gone() -> None:
    ended = pod("job", phase="Succeeded")
    table = after_sync(A, ended)
    table.open_stream()
    table.end_sync(now=10.0)
    kept = table.by_name(now=10.0)
    table.put(ended, now=10.7)
    table.remove(ended.uid, now=10.71)
    table.put(A, now=10.72)
    assert table.by_name(now=10.72) == {("ml", "a"): kept["ml", "a"]}


def test_a_name_means_the_last_reported_pod_that_has_not_ended() -> None:
    table = after_sync(pod("a", "1"), pod("a", "2"))
    assert table.by_name(now=0.0)["ml", "a"].uid == "2"
    table.put(pod("a", "2", phase="Failed"), now=1.0)
    assert table.by_name(now=1.0)["ml", "a"].uid == "1"
    table.open_stream()
    table.put(pod("a", "2", phase="Failed"), now=2.0)
    assert table.by_name(now=2.0)["ml", "a"].uid == "2"


# issue 7, line 5
def test_who_bore_a_name_and_when() -> None:
    table = after_sync(pod("a", "1"))
    table.remove("1", now=5.0)
    table.put(pod("a", "2", is_acknowledged=False, phase="Pending"), now=6.0)
    table.put(pod("a", "2"), now=8.0)
    table.put(pod("a", "2", ip="10.0.0.1"), now=9.0)
    assert [
        (named.pod.uid, named.since, named.until, named.is_first) for named in table.pods_of_names(now=9.0)["ml", "a"]
    ] == [("1", 0.0, 5.0, True), ("2", 8.0, inf, False)]
    assert table.pods_of_names(now=9.0)["ml", "a"][1].pod.ip == "10.0.0.1"
    assert table.pods_of_names(now=9.0) is table.pods_of_names(now=9.5)


# issue 7, line 5
def test_one_that_is_awaited_is_gone_when_its_successor_is_told_of() -> None:
    table = after_sync(pod("a", "1"), B)
    table.open_stream()
    table.end_sync(now=10.0)
    table.put(pod("a", "2"), now=11.0)
    first, second = table.pods_of_names(now=11.0)["ml", "a"]
    assert (first.pod.uid, first.until, second.since) == ("1", 11.0, 11.0)
    assert names(table, 11.0) == {"a", "b"}


def test_one_that_was_thought_to_be_gone_and_is_told_of_again_is_the_same() -> None:
    table = after_sync(A)
    table.remove(A.uid, now=5.0)
    table.put(A, now=6.0)
    (named,) = table.pods_of_names(now=6.0)["ml", "a"]
    assert (named.since, named.until, named.is_first) == (0.0, inf, True)


# issue 7, line 41: MOST_PODS of sources/pods.py
def until(table: PodTable, name: str, now: float) -> list[tuple[str, float, bool]]:
    """The pods of a name, each with the moment until which it surely had the name, and whether it is gone."""
    return [(named.pod.uid, named.until, named.is_gone) for named in table.pods_of_names(now=now)["ml", name]]


# issue 24
def test_after_a_broken_stream_a_name_is_in_doubt_until_it_is_sent_again() -> None:
    table = after_sync(A, B)
    table.cut_off(5.0)
    assert until(table, "a", 6.0) == [(A.uid, 5.0, False)]
    table.open_stream()
    table.put(A, now=8.0)
    table.end_sync(now=8.0)
    table.hear_all()
    assert until(table, "a", 8.0) == [(A.uid, inf, False)]
    assert until(table, "b", 8.0) == [(B.uid, 5.0, False)], "a kubelet that has just started tells of it later"
    table.put(B, now=9.0)
    assert until(table, "b", 9.0) == [(B.uid, inf, False)]


# issue 24
def test_a_watch_that_goes_on_first_tells_what_it_has_missed() -> None:
    table = after_sync(A)
    table.cut_off(5.0)
    table.hear_again(20.0)
    assert until(table, "a", 20.0) == [(A.uid, 5.0, False)]
    table.hear_again(20.0 + CATCH_UP_SECONDS / 2)
    assert until(table, "a", 20.0 + CATCH_UP_SECONDS) == [(A.uid, inf, False)]
    table.cut_off(30.0)
    table.hear_again(31.0)
    table.cut_off(31.1)
    assert until(table, "a", 40.0) == [(A.uid, 30.0, False)], "it broke again before all was told"


# issue 24
def test_who_has_gone_unheard_may_have_gone_at_any_moment_since() -> None:
    table = after_sync(A)
    table.cut_off(5.0)
    table.replace([pod("a", "new")], now=20.0)
    assert until(table, "a", 20.0) == [(A.uid, 5.0, True), ("new", inf, False)]


def test_a_pod_too_many_is_refused_unless_one_is_only_awaited() -> None:
    table = after_sync(*(pod(str(number)) for number in range(MOST_PODS)))
    with pytest.raises(Malformed, match=f"more than {MOST_PODS} pods"):
        table.put(pod("more"), now=1.0)
    table.put(pod("0", ip="10.0.0.1"), now=1.0)
    assert len(table) == MOST_PODS
    table.open_stream()
    table.put(pod("more"), now=2.0)
    assert len(table) == MOST_PODS
    assert ("ml", "more") in table.by_name(now=2.0)


def test_those_that_are_gone_are_remembered_up_to_a_number() -> None:
    table = after_sync(*(pod(str(number)) for number in range(MOST_GONE + 5)))
    for number in range(MOST_GONE + 5):
        table.remove(f"uid-{number}", now=1.0)
    assert len(table.pods_of_names(now=1.0)) == len(table._uids_of) == len(table._gone) == MOST_GONE
    assert ("ml", "4") not in table.pods_of_names(now=1.0)


actions = st.lists(
    st.tuples(
        st.sampled_from(("put", "put", "put", "remove", "open", "sync", "wait")),
        st.sampled_from((A, B, STATIC, pod("a", "other"), pod("b", phase="Failed"))),
        st.floats(0, 30),
    ),
    max_size=40,
)


# issue 7, line 2
@given(actions=actions)
def test_whatever_is_told(actions: list[tuple[str, PodInfo, float]]) -> None:
    """What a stream told of is there until it says otherwise; nothing else outlives the grace or the bound."""
    table, now = PodTable(max_silence_seconds=100.0), 0.0
    told: dict[str, PodInfo] = {}
    first_real_at: float | None = None
    for what, found, seconds in actions:
        now += seconds
        if what == "put":
            table.put(found, now=now)
            told[found.uid] = found
            if not found.is_static and first_real_at is None:
                first_real_at = now
        elif what == "remove":
            table.remove(found.uid, now=now)
            told.pop(found.uid, None)
        elif what == "open":
            table.open_stream()
            told, first_real_at = {}, None
        elif what == "sync":
            table.end_sync(now=now)
        by_name = table.by_name(now=now)
        there = {
            named.pod.uid
            for of_name in table.pods_of_names(now=now).values()
            for named in of_name
            if named.until == inf
        }
        assert told.keys() <= there
        assert {(known.namespace, known.name) for known in told.values()} <= by_name.keys()
        assert len(table) == len(there)
        if first_real_at is not None and now - first_real_at >= GRACE_SECONDS:
            assert there == told.keys()
        for name, of_name in table.pods_of_names(now=now).items():
            assert all(named.since <= named.until for named in of_name)
            assert (name in by_name) == any(named.until == inf for named in of_name)


# issue 7, line 2
def test_that_pods_are_dropped_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    table = PodTable()  # with the bound that is the default
    table.replace([A], now=0.0)
    table.replace([], now=1.0)
    assert names(table, 600.9) == {"a"}
    assert names(table, 601.0) == set()
    assert "pods dropped" in caplog.text


_WORD = "hami.io/vgpu-devices-allocated"


def both_ways(metadata: dict[str, Any], spec: dict[str, Any]) -> tuple[PodInfo, PodInfo]:
    """A pod as the kubelet sends it, and as the API server does. A quantity is a text in JSON, a message elsewhere."""
    content = {"metadata": {"name": "p", **metadata}, "spec": spec}
    body = json.loads(json.dumps(content), object_hook=_with_quantities)
    kept = frozenset({_WORD})
    return parse_pod(messages.Pod(**body).SerializeToString(), kept), read_pod(content, kept)


def _with_quantities(part: dict[str, Any]) -> dict[str, Any]:
    if "limits" in part:
        part["limits"] = {name: {"string": text} for name, text in part["limits"].items()}
    return part


# issue 24, part 2
def test_containers_are_those_of_the_spec_in_its_order() -> None:
    spec = {
        "containers": [
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1", "cpu": "2", "memory": "1Gi"}}},
            {"name": "proxy"},
        ],
        "initContainers": [
            {"name": "fetch", "resources": {"limits": {"volcano.sh/vgpu-number": "1", "nvidia.com/gpumem": "1k"}}},
            {"name": "sidecar", "resources": {"limits": {"cpu": "1"}}},
        ],
    }
    for pod in both_ways({}, spec):
        assert pod.containers == (
            PodContainer(
                name="fetch", is_init=True, resources=frozenset({"volcano.sh/vgpu-number", "nvidia.com/gpumem"})
            ),
            PodContainer(name="sidecar", is_init=True),
            PodContainer(name="main", resources=frozenset({"nvidia.com/gpu"})),
            PodContainer(name="proxy"),
        )


# issue 24, part 2
def test_of_annotations_only_those_that_allocators_write_are_kept() -> None:
    for pod in both_ways({"annotations": {_WORD: "GPU-1,NVIDIA,1,1:;", "other": "x"}}, {}):
        assert dict(pod.annotations) == {_WORD: "GPU-1,NVIDIA,1,1:;"}
    for pod in both_ways({"annotations": {"other": "x"}}, {}):
        assert not pod.annotations


# issue 24, part 2
def test_an_annotation_that_is_too_long_is_not_taken_for_a_whole_one() -> None:
    longest = "x" * MOST_ANNOTATION_CHARS
    for text, kept in ((longest, longest), (longest + ";", longest + CUT), (longest * 8, longest + CUT)):
        for pod in both_ways({"annotations": {_WORD: text}}, {}):
            assert pod.annotations[_WORD] == kept
