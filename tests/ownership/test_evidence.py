"""Which entry of the kubelet's checkpoint is a container's, and which is of a container that had its ids before."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Claim
from exporter.model.grants import NO_EVIDENCE, CheckpointEntry, Given, Grant, Word
from exporter.model.pods import Owner, PodInfo, PodOfName, PodsOfNames
from exporter.ownership import evidence
from exporter.ownership.device_ids import RULES, Rule, read_device_id, read_rules
from exporter.ownership.evidence import (
    NO_TOKENS,
    NONE_LATE,
    AllTokens,
    Arrivals,
    Tokens,
    Turnover,
    by_checkpoint,
    of_every_resource,
    together,
    tokens_among,
)

# as users know them
SETTLED_SECONDS = 2.0

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
X, Y = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9", "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"
GPU = "nvidia.com/gpu"
NO_PODS: PodsOfNames = {}


def assigned(owner: Owner, *ids: str, resource: str = GPU) -> list[Assignment]:
    return [Assignment(owner=owner, resource=resource, device_id=device_id) for device_id in ids]


def on(uuid: str, allocator: str = "") -> Given:
    ref = DeviceRef(form="NVIDIA_VISIBLE_DEVICES", uuid=uuid, shared=bool(allocator))
    return Given(source="it", refs=(ref,), grants=(Grant(allocator=allocator, memory_mib=1.0),))


def kept(uid: str, given: Given | None, *ids: str, container: str = "main", resource: str = GPU) -> CheckpointEntry:
    return CheckpointEntry(pod_uid=uid, container=container, resource=resource, ids=frozenset(ids), given=given)


def tokens(*assignments: list[Assignment]) -> AllTokens:
    return tokens_among([each for of_owner in assignments for each in of_owner], RULES)


def named(owner: Owner, *uids: str, is_static: bool = False, until: float = inf) -> PodsOfNames:
    pods = (PodInfo(namespace=owner.namespace, name=owner.pod, uid=uid, labels={}, is_static=is_static) for uid in uids)
    return {owner.pod_key: tuple(PodOfName(pod=pod, since=0.0, until=until, is_first=False) for pod in pods)}


def test_an_entry_is_that_of_the_container_with_its_ids() -> None:
    entries = [kept("u-1", on(Y), f"{X}-3"), kept("u-2", on(X), f"{X}-4", f"{Y}-1")]
    held = tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4", f"{Y}-1"))
    given = by_checkpoint(entries, held, NO_PODS, NONE_LATE)
    assert given == {(A, GPU): on(Y, "HAMi"), (B, GPU): on(X, "HAMi")}


@pytest.mark.parametrize(
    "entry",
    [
        kept("u-1", on(Y), f"{X}-4"),
        kept("u-1", on(Y), f"{X}-3", f"{X}-4"),
        kept("u-1", on(Y), f"{X}-3", container="other"),
        kept("u-1", on(Y), f"{X}-3", resource="volcano.sh/vgpu-number"),
        kept("u-1", None, f"{X}-3"),
    ],
    ids=["other ids", "more ids", "other container", "other resource", "no devices"],
)
def test_another_entry_is_not(entry: CheckpointEntry) -> None:
    assert by_checkpoint([entry], tokens(assigned(A, f"{X}-3")), NO_PODS, NONE_LATE) == {}


def test_several_entries_count_only_if_they_agree() -> None:
    held = tokens(assigned(A, f"{X}-3"))
    agreeing = [kept("u-1", on(Y), f"{X}-3"), kept("u-2", on(Y), f"{X}-3")]
    assert by_checkpoint(agreeing, held, NO_PODS, NONE_LATE) == {(A, GPU): on(Y, "HAMi")}
    assert by_checkpoint([*agreeing, kept("u-3", on(X), f"{X}-3")], held, NO_PODS, NONE_LATE) == {}


def test_where_pods_are_known_only_their_uid_counts() -> None:
    held = tokens(assigned(A, f"{X}-3"))
    entries = [kept("u-1", on(Y), f"{X}-3"), kept("u-2", on(X), f"{X}-3")]
    assert by_checkpoint(entries, held, named(A, "u-2"), NONE_LATE) == {(A, GPU): on(X, "HAMi")}
    assert by_checkpoint(entries[:1], held, named(A, "u-2"), NONE_LATE) == {}
    # the kubelet's uid of a static pod is not the API's
    assert by_checkpoint(entries[:1], held, named(A, "u-2", is_static=True), NONE_LATE) == {(A, GPU): on(Y, "HAMi")}
    # while the API is away nobody knows whether the pod was made anew
    assert by_checkpoint(entries[:1], held, named(A, "u-2", until=7.0), NONE_LATE) == {(A, GPU): on(Y, "HAMi")}


def test_tokens_are_those_of_the_rules_and_of_plugins_with_a_scheduler() -> None:
    claim = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="p", device="gpu-0")
    others = [
        *assigned(A, X, "MIG-7d4b5a1c-3e3e-5e0f-8a3b-3f5d2c1b0a99", f"{X}::3"),
        Assignment(owner=A, resource="tencent.com/vcuda-core", device_id="tencent.com/vcuda-core-7", units=50),
        Assignment(owner=A, resource="gpu.nvidia.com", device_id=claim.device_id, claim=claim),
    ]
    assert tokens_among(others, RULES) is NO_TOKENS
    found = tokens(
        others,
        assigned(B, f"{X}-3", f"{X}-4"),
        assigned(B, f"{X}-_-3", resource="aliyun.com/gpu-mem"),
        assigned(B, "Ascend910-7", resource="huawei.com/Ascend910"),
        assigned(B, "card1-0", resource="gpu.intel.com/i915"),
    )
    assert {resource: of.allocator for (_, resource), of in found.items()} == {
        GPU: "HAMi",
        "aliyun.com/gpu-mem": "gpushare",
        "huawei.com/Ascend910": "Ascend",
        "gpu.intel.com/i915": "GPU Aware Scheduling",
    }
    assert [of.are_shares for of in found.values()] == [True, True, False, False]
    assert found[B, GPU].ids == {f"{X}-3", f"{X}-4"}
    mine = read_rules({"devices": [{"resource": GPU, "id": "(?P<uuid>GPU-.{36})-(?P<share>.*)"}]})
    assert tokens_among(assigned(B, f"{X}-3"), mine.rules) is NO_TOKENS


def test_the_first_source_comes_first_and_what_is_equal_stays() -> None:
    first, second = {(A, GPU): on(X)}, {(A, GPU): on(Y), (B, ""): on(Y)}
    evidence = together([first, second], NO_EVIDENCE)
    assert evidence == {(A, GPU): (on(X), on(Y)), (B, ""): (on(Y),)}
    assert together([dict(first), dict(second)], evidence) is evidence
    assert together([{}, {}], NO_EVIDENCE) is NO_EVIDENCE
    assert together([{}, {}], evidence) is NO_EVIDENCE


def test_a_file_from_before_a_container_says_nothing_of_it() -> None:
    """Its entry may be that of the container that had the same ids before."""
    arrivals = Arrivals()
    of_a, of_both = tokens(assigned(A, f"{X}-3")), tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4"))
    arrivals.note(of_a, 10.0)
    assert arrivals.late(of_a, 3.0, 10.0) is NONE_LATE, "what the first List has may be old"
    arrivals.note(of_a, 20.0)
    arrivals.note(of_both, 30.0)
    assert arrivals.late(of_both, 3.0, 30.1) == {(B, GPU)}
    assert arrivals.late(of_both, 3.0, 30.1) is arrivals.late(of_both, 3.0, 30.2)
    assert arrivals.late(of_both, 25.0, 30.1) == NONE_LATE, "the file was written since List lacked the container"
    assert arrivals.late(of_both, 3.0, 30.0 + SETTLED_SECONDS) == NONE_LATE, "by now the kubelet has written it"


def test_other_ids_under_the_same_name_are_another_container() -> None:
    arrivals = Arrivals()
    arrivals.note(tokens(assigned(A, f"{X}-3")), 10.0)
    anew = tokens(assigned(A, f"{X}-4"))
    assert arrivals.late(anew, 25.0, 19.0) == {(A, GPU)}
    arrivals.note(anew, 20.0)
    assert arrivals.late(anew, 3.0, 20.1) == {(A, GPU)}


def test_a_container_that_no_list_had_yet_is_late() -> None:
    assert Arrivals().late(tokens(assigned(A, f"{X}-3")), 3.0, 4.0) == {(A, GPU)}


def test_ids_are_read_again_only_of_containers_whose_ids_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """At every change of List a node with 800 shares would spend 10 ms on it."""
    texts: list[str] = []

    def counting(resource: str, device_id: str, rules: Sequence[Rule]) -> DeviceRef | None:
        texts.append(device_id)
        return read_device_id(resource, device_id, rules)

    monkeypatch.setattr(evidence, "read_device_id", counting)
    one, other = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
    gpu = "GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9"

    def given(owner: Owner, device_id: str) -> Assignment:
        return Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)

    read: evidence.ReadIds = {}
    assert [*tokens_among([given(one, f"{gpu}-1"), given(other, gpu)], RULES, read)] == [(one, "nvidia.com/gpu")]
    again = tokens_among([given(one, f"{gpu}-1"), given(other, f"{gpu}-2")], RULES, read)
    assert [*again] == [(owner, "nvidia.com/gpu") for owner in (one, other)]
    assert sorted(texts) == [gpu, f"{gpu}-1", f"{gpu}-2"]
    assert tokens_among([], RULES, read) == {}
    assert read == {}


def test_a_word_on_a_container_is_of_each_of_its_resources() -> None:
    held = tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4"), assigned(A, f"{X}-_-3", resource="aliyun.com/gpu-mem"))
    given = of_every_resource({A: on(Y)}, held, {})
    assert given.keys() == {(A, "")}
    assert of_every_resource({A: on(Y)}, held, given) is given
    assert of_every_resource({}, held, given) == {}


def test_a_container_is_as_it_is_since_its_facts_changed() -> None:
    turnover = Turnover()
    assert turnover.note({A: 1, B: 1}, 10.0) == {A: 10.0, B: 10.0}
    since = turnover.note({A: 1, B: 2}, 20.0)
    assert since == {A: 10.0, B: 20.0}
    assert turnover.note({A: 1, B: 2}, 30.0) is since
    assert turnover.note({B: 2}, 40.0) == {B: 20.0}
    assert turnover.note({A: 1, B: 2}, 50.0) == {A: 50.0, B: 20.0}


@pytest.mark.parametrize(("changed_at", "is_late"), [(19.94, True), (19.96, False), (20.0, False)])
def test_the_clock_of_files_may_be_a_little_behind(changed_at: float, *, is_late: bool) -> None:
    arrivals, of_b = Arrivals(), tokens(assigned(B, f"{X}-4"))
    arrivals.note(NO_TOKENS, 20.0)
    arrivals.note(of_b, 30.0)
    assert bool(arrivals.late(of_b, changed_at, 31.9)) == is_late
    assert not arrivals.late(of_b, changed_at, 32.0)


def test_only_the_container_that_came_last_is_late() -> None:
    """The same tokens as an equal object, as they are read anew with every List."""
    arrivals = Arrivals()
    arrivals.note(NO_TOKENS, 10.0)
    arrivals.note(tokens(assigned(A, f"{X}-3")), 20.0)
    arrivals.note(tokens(assigned(A, f"{X}-3")), 30.0)
    both = tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4"))
    arrivals.note(both, 30.5)
    assert arrivals.late(both, 3.0, 31.0) == {(B, GPU)}
    assert arrivals.late(tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4")), 3.0, 99.0) == NONE_LATE
    unknown = tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-5"))
    assert arrivals.late(unknown, 99.0, 99.0) == {(B, GPU)}, "List has not had these ids yet"


def test_a_container_that_comes_back_with_its_ids_is_another_one() -> None:
    arrivals, of_a = Arrivals(), tokens(assigned(A, f"{X}-3"))
    for moment, of_list in ((10.0, of_a), (20.0, NO_TOKENS), (30.0, of_a)):
        arrivals.note(of_list, moment)
    assert arrivals.late(of_a, 3.0, 30.1) == {(A, GPU)}


def test_a_late_container_has_no_word_of_a_checkpoint() -> None:
    held = tokens(assigned(A, f"{X}-3"), assigned(B, f"{X}-4"))
    entries = [kept("u-1", on(Y), f"{X}-3"), kept("u-2", on(Y), f"{X}-4")]
    assert by_checkpoint(entries, held, NO_PODS, {(A, GPU)}).keys() == {(B, GPU)}


def test_a_mark_or_a_word_makes_ids_of_any_form_tokens() -> None:
    """A container's ids are of one resource, given in one piece or in several."""
    word = Word(grant=Grant(allocator="KAI"))
    by_word = replace(assigned(A, X)[0], word=word)
    other = assigned(Owner(namespace="ml", pod="a", container="main"), Y)[0]
    (of_a,) = tokens_among([by_word, other], RULES).values()
    assert of_a == Tokens(ids=frozenset({X, Y}), allocator="KAI", are_shares=False)
