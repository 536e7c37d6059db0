"""Which labels a sample gains: whose word counts, under which names, in how many rows."""

from typing import Any

import pytest

from exporter.exposition.join import Joiner
from exporter.model.devices import AddedLabels, Assignment, DeviceKey, Holder, Owners
from exporter.model.pages import Rows
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy, PodAdditions
from exporter.ownership.sample_rows import Attribution
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="web", pod="serve-1", container="server")
IS_A = (("pod", "train-0"), ("namespace", "ml"), ("container", "main"))
IS_B = (("pod", "serve-1"), ("namespace", "web"), ("container", "server"))
IDLE = (("pod", ""), ("namespace", ""), ("container", ""))
SHARED = (("gpu_shared", "true"),)
CAME = {"pod": "came", "namespace": "in", "container": "c"}
IS_CAME = (("pod", "came"), ("namespace", "in"), ("container", "c"))


def labels_of(found: Rows) -> tuple[AddedLabels, ...]:
    return tuple(row.labels for row in found.each)


def rows(
    samples: list[dict[str, str]], owns: dict[str, Owner] | None = None, policy: LabelPolicy | None = None
) -> list[tuple[AddedLabels, ...]]:
    policy = policy or LabelPolicy()
    owners = build_owners(
        Assignment(owner=owner, resource="nvidia.com/gpu", device_id=device_id)
        for device_id, owner in (owns or {}).items()
    )
    subjects = [(labels.pop("__name__", "family").encode(), policy.read_subject(labels)) for labels in samples]
    return [labels_of(found) for found in Attribution(owners, policy)(subjects)]


def row(labels: dict[str, str], owns: dict[str, Owner] | None = None, **policy: Any) -> tuple[AddedLabels, ...]:
    (only,) = rows([labels], owns, LabelPolicy(**policy))
    return only


@pytest.mark.parametrize(
    ("labels", "owns", "expected"),
    [
        ({"UUID": "GPU-1"}, {"GPU-1": A}, (IS_A,)),
        ({"uuid": "GPU-1"}, {"GPU-1": A}, (IS_A,)),
        ({"gpu_uuid": "GPU-1", "nvlink": "0"}, {"GPU-1": A}, (IS_A,)),
        ({"UUID": "GPU-1", "GPU_I_ID": "7"}, {"GPU-1": A}, (IS_A,)),
        ({"UUID": "MIG-1"}, {"MIG-1": A}, (IS_A,)),
        ({"UUID": "GPU-1"}, {"MIG-1": A}, (IDLE,)),
        ({"UUID": "GPU-2"}, {"GPU-1": A}, (IDLE,)),
        ({"cpu": "0"}, {"GPU-1": A}, (IDLE,)),
        ({}, {"GPU-1": A}, (IDLE,)),
        # a share is marked, with and without a neighbour
        ({"UUID": "GPU-1"}, {"GPU-1::0": A}, (IS_A + SHARED,)),
        ({"UUID": "GPU-1"}, {"GPU-1::0": A, "GPU-1::1": A}, (IS_A + SHARED,)),
        ({"UUID": "GPU-1"}, {"GPU-1::0": B, "GPU-1::1": A}, (IS_A + SHARED, IS_B + SHARED)),
    ],
)
def test_the_kubelets_word(labels: dict[str, str], owns: dict[str, Owner], expected: tuple[AddedLabels, ...]) -> None:
    assert row(labels, owns) == expected


@pytest.mark.parametrize(
    ("labels", "owns", "replace", "keep"),
    [
        ({"UUID": "GPU-1", **CAME}, {"GPU-1": A}, (IS_A,), (IS_CAME,)),
        ({"UUID": "GPU-1", **CAME}, {}, (IS_CAME,), (IS_CAME,)),
        ({"UUID": "GPU-1", "pod": "", "namespace": "", "container": ""}, {"GPU-1": A}, (IS_A,), (IS_A,)),
        # one set: half of what came in is never mixed with the kubelet's word, pod_uid goes with its pod
        ({"UUID": "GPU-1", "pod": "came", "pod_uid": "7"}, {"GPU-1": A}, (IS_A,),
         ((("pod", "came"), ("namespace", ""), ("container", ""), ("pod_uid", "7")),)),
        ({"UUID": "GPU-1", "pod_name": "came", "pod_namespace": "in", "container_name": "c"}, {},
         (IS_CAME,), (IS_CAME,)),
        ({"UUID": "GPU-1", **CAME}, {"GPU-1::0": A, "GPU-1::1": B}, (IS_A + SHARED, IS_B + SHARED), (IS_CAME,)),
        # virtual GPUs come per owner: never copied
        ({"UUID": "GPU-1", "vgpu": "1", **CAME}, {"GPU-1::0": A, "GPU-1::1": B}, (IS_CAME,), (IS_CAME,)),
        ({"UUID": "GPU-1", "vgpu": "1"}, {"GPU-1::0": A, "GPU-1::1": B}, (IDLE,), (IDLE,)),
        ({"UUID": "GPU-1", "vgpu": "1", **CAME}, {"GPU-1::0": A}, (IS_A + SHARED,), (IS_CAME,)),
        # the kubelet knows that what came in holds a share
        ({"UUID": "GPU-1", "vgpu": "1", "pod": "train-0", "namespace": "ml", "container": "main"},
         {"GPU-1::0": A, "GPU-1::1": B}, (IS_A + SHARED,), (IS_A + SHARED,)),
        # an exporter behind an exporter
        ({"UUID": "GPU-1", "gpu_shared": "true", **CAME}, {}, (IS_CAME + SHARED,), (IS_CAME + SHARED,)),
    ],
)  # fmt: skip
def test_a_page_that_is_already_attributed(
    labels: dict[str, str], owns: dict[str, Owner], replace: tuple[AddedLabels, ...], keep: tuple[AddedLabels, ...]
) -> None:
    assert row(labels, owns) == replace
    assert row(labels, owns, incoming_wins=True) == keep


def test_rows_of_one_device_with_different_owners_are_left_as_they_are() -> None:
    samples = [
        {"__name__": "power", "UUID": "GPU-1", "pod": "x"},
        {"__name__": "power", "UUID": "GPU-1", "pod": "y"},
        {"__name__": "power", "UUID": "GPU-1"},
        {"__name__": "temp", "UUID": "GPU-1", "pod": "x"},
        {"__name__": "power", "UUID": "GPU-2", "pod": "x"},
    ]
    owner_of = [
        [dict(added)["pod"] for added in found] for found in rows(samples, {"GPU-1::0": A, "GPU-1::1": B, "GPU-2": A})
    ]
    assert owner_of == [["x"], ["y"], [""], ["train-0", "serve-1"], ["train-0"]]


# issue 7, line 31
@pytest.mark.parametrize(
    ("came", "expected"),
    [
        # two upstreams with one GPU, one of which names owners: the kubelet's word holds for both
        ([{"pod": "x"}, {}], [["train-0"], ["train-0"]]),
        ([{}, {"pod": "x"}], [["train-0"], ["train-0"]]),
        ([{"pod": "x"}, {"pod": ""}], [["train-0"], ["train-0"]]),
        # both name one owner, and one of them its uid as well
        ([{"pod": "x"}, {"pod": "x", "pod_uid": "7"}], [["train-0"], ["train-0"]]),
        # several owners, with or without a row that has none
        ([{"pod": "x"}, {"pod": "y"}], [["x"], ["y"]]),
        ([{"pod": "x", "pod_uid": "7"}, {"pod": "x", "pod_uid": "8"}], [["x"], ["x"]]),
        ([{"pod": "x"}, {}, {"pod": "y"}], [["x"], [""], ["y"]]),
        # the device's own row beside one of a virtual GPU is nobody's: its owners have rows of their own
        ([{}, {"pod": "x", "vgpu": "0"}], [[""], ["train-0"]]),
    ],
)
def test_rows_of_one_family_and_device(came: list[dict[str, str]], expected: list[list[str]]) -> None:
    samples = [{"__name__": "power", "UUID": "GPU-1", **labels} for labels in came]
    assert [[dict(added)["pod"] for added in found] for found in rows(samples, {"GPU-1": A})] == expected


# issue 7, line 31
def test_the_row_of_an_upstream_that_names_no_owner_is_no_second_series() -> None:
    policy = LabelPolicy()
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    owners = build_owners([Assignment(owner=A, resource="nvidia.com/gpu", device_id="GPU-1")])
    pages = [b'power{UUID="GPU-1"} 1\n', b'power{UUID="GPU-1",pod="x",namespace="y",container="z"} 2\n']
    for bodies in (pages, pages[::-1]):
        joined = joiner.join(bodies, Attribution(owners, policy))
        assert joined.body.count(b"\n") == 1
        assert b'pod="train-0",namespace="ml",container="main"' in joined.body
        assert joined.rejected == {"duplicate": 1}


# issue 7, line 38
@pytest.mark.parametrize(
    ("came", "of_pods", "expected"),
    [
        # the kubelet names the same pod: what the page knows beside it stays
        ({"pod": "train-0", "namespace": "ml", "container": "main", "pod_uid": "7"}, {}, (("pod_uid", "7"),)),
        ({"pod": "train-0", "namespace": "ml", "pod_uid": "7", "label_team": "red"}, {},
         (("pod_uid", "7"), ("label_team", "red"))),
        # what is known here of the pod goes first
        ({"pod": "train-0", "namespace": "ml", "pod_uid": "7", "label_team": "red", "label_x": "y"},
         {"pod_uid": "8", "label_team": "blue"}, (("label_x", "y"), ("pod_uid", "8"), ("label_team", "blue"))),
        # another pod's stays with it
        ({"pod": "train-0", "namespace": "other", "pod_uid": "7", "label_team": "red"}, {}, ()),
        ({"pod": "train-1", "namespace": "ml", "pod_uid": "7", "label_team": "red"}, {}, ()),
        ({"pod_uid": "7"}, {}, ()),
        # a claim is the owner's as well
        ({"pod": "train-0", "namespace": "ml", "dra_claim_name": "c"}, {}, (("dra_claim_name", "c"),)),
        ({"pod": "train-1", "namespace": "ml", "dra_claim_name": "c"}, {}, ()),
    ],
)  # fmt: skip
def test_what_a_page_says_of_the_pod_that_the_kubelet_names(
    came: dict[str, str], of_pods: dict[str, str], expected: AddedLabels
) -> None:
    policy = LabelPolicy(has_pod_labels=True, has_claims=True)
    owners = build_owners(
        Assignment(owner=owner, resource="nvidia.com/gpu", device_id=f"GPU-1::{owner.pod}") for owner in (A, B)
    )
    words = dict(of_pods)
    of_pod = PodAdditions(uid=words.pop("pod_uid", ""), labels=tuple(words.items()))
    attribution = Attribution(owners, policy, of_pods={("ml", "train-0"): of_pod})
    (rows_of_both,) = attribution([(b"power", policy.read_subject({"UUID": "GPU-1", **came}))])
    assert labels_of(rows_of_both) == (IS_A + SHARED + expected, IS_B + SHARED)


# issue 7, line 41
def test_a_sample_of_no_device_is_nobodys_even_with_an_empty_id() -> None:
    policy = LabelPolicy()
    holder = Holder(owner=A, resource="nvidia.com/gpu", shared=False)
    owners = Owners(holders={DeviceKey(uuid=""): (holder,)})
    (found,) = Attribution(owners, policy)([(b"family", policy.read_subject({"cpu": "0"}))])
    assert labels_of(found) == (IDLE,)


# issue 7, line 41
@pytest.mark.parametrize(
    ("labels", "came_with"),
    [
        ({"UUID": "GPU-1"}, None),
        ({"pod": "", "namespace": "", "container": "", "pod_uid": ""}, None),
        ({"pod": "p"}, Owner(namespace="", pod="p", container="")),
        ({"namespace": "n"}, Owner(namespace="n", pod="", container="")),
        ({"container_name": "c"}, Owner(namespace="", pod="", container="c")),
        ({"pod_uid": "7"}, Owner(namespace="", pod="", container="")),
    ],
)
def test_any_word_of_an_owner_makes_one(labels: dict[str, str], came_with: Owner | None) -> None:
    assert LabelPolicy().read_subject(labels).came_with == came_with


def test_exported_labels_name_an_owner_only_with_a_pod() -> None:
    policy = LabelPolicy()
    moved = {"exported_pod": "p", "exported_namespace": "n", "exported_container": "c"}
    assert policy.read_subject(moved).exported == Owner(namespace="n", pod="p", container="c")
    assert policy.read_subject({"exported_namespace": "n"}).exported is None
    assert policy.read_subject({"UUID": "GPU-1"}).exported is None


def test_names() -> None:
    legacy = row({"UUID": "GPU-1", "pod": "came"}, {}, names=("pod_name", "pod_namespace", "container_name"))
    assert legacy == ((("pod_name", "came"), ("pod_namespace", ""), ("container_name", "")),)
    custom = row({"UUID": "GPU-1", "x": "came"}, {"GPU-1": A}, names=("x", "y", "z"), idle_labels=False)
    assert custom == ((("x", "train-0"), ("y", "ml"), ("z", "main")),)


def test_idle_samples_may_go_without_labels() -> None:
    assert row({"UUID": "GPU-1"}, {}, idle_labels=False) == ((),)


def test_sharing_device_shows_a_device_once_without_an_owner() -> None:
    both = {"GPU-1::0": A, "GPU-1::1": B}
    assert row({"UUID": "GPU-1"}, both, sharing="device") == (IDLE,)
    assert row({"UUID": "GPU-1"}, {"GPU-1::0": A}, sharing="device") == (IS_A + SHARED,)
    assert row({"UUID": "GPU-1", **CAME}, both, sharing="device") == (IDLE,)
