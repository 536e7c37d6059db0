"""Which labels a sample gains: whose word counts, under which names, in how many rows."""

from typing import Any

import pytest

from exporter.exposition.join import Joiner
from exporter.model.devices import AddedLabels, Assignment, Claim, DeviceKey, Holder, Owners
from exporter.model.pages import Rows, Subject
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy, PodAdditions, SampleLabels, labels_of_claim, pod_labels_among
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


@pytest.mark.parametrize(
    ("policy", "taken"),
    [
        (LabelPolicy(), ""),
        (LabelPolicy(has_pod_labels=True), "label_team"),
        (LabelPolicy(has_claims=True), "dra_claim_name"),
        (LabelPolicy(has_pod_labels=True, has_claims=True), "label_team dra_claim_name"),
        # a sample that goes out without an owner has nothing of one
        (LabelPolicy(names_owners=False), "label_team dra_claim_name"),
        (LabelPolicy(names=("x", "y", "z")), "x"),
    ],
)
def test_the_labels_that_are_taken_off_a_sample(policy: LabelPolicy, taken: str) -> None:
    always = ["pod", "namespace", "container", "pod_name", "pod_namespace", "container_name", "pod_uid", "gpu_shared"]
    others = ["label_team", "dra_claim_name", "x", "gpu", "UUID", "exported_pod", "dra_other"]
    assert [name for name in (*always, *others) if policy.is_owner_label(name)] == [*always, *taken.split()]


def test_without_owners_every_sample_is_nobodys() -> None:
    assert LabelPolicy().nobodys is None
    for policy, expected in (
        (LabelPolicy(names_owners=False), IDLE),
        (LabelPolicy(names_owners=False, idle_labels=False), ()),
    ):
        assert policy.nobodys is not None
        assert labels_of(policy.nobodys) == (expected,)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, False),
        ({"gpu": "0"}, True),
        # samples of disks have these, too
        ({"device": "sda"}, False),
        ({"uuid": "6f1f2a5c"}, False),
        ({"uuid": "6f1f2a5c", "device": "sda"}, False),
        ({"uuid": "6f1f2a5c", "gpu": "0"}, True),
        ({"uuid": "6f1f2a5c", "model_name": "MI300X"}, True),
        ({"UUID": "6f1f2a5c"}, True),
        ({"gpu_uuid": "6f1f2a5c"}, True),
        # a model is no name of one GPU
        ({"modelName": "MI300X"}, False),
        # NVIDIA's UUIDs say by themselves that it is a GPU
        ({"UUID": "GPU-1", "gpu": "0"}, False),
        ({"uuid": "MIG-1", "gpu": "0"}, False),
    ],
)
def test_a_label_that_only_gpus_have(labels: dict[str, str], expected: bool) -> None:
    assert LabelPolicy().read_subject(labels).has_gpu_label is expected


def test_every_part_of_a_device_is_read_from_its_label() -> None:
    ours = SampleLabels(device=("dev_file", "device"))
    parts = {
        "gpu": "1", "dev_file": "card1", "UUID": "u", "modelName": "m", "GPU_I_ID": "7", "GPU_I_PROFILE": "1g.10gb",
        "pci_bus_id": "0:1:0.0", "DCGM_FI_DRIVER_VERSION": "570", "DCGM_FI_DEV_SERIAL": "s", "hostname": "n",
        "vgpu": "v",
    }  # fmt: skip
    assert LabelPolicy(sample_labels=ours).read_subject(parts) == Subject(
        uuid="u",
        instance="7",
        profile="1g.10gb",
        index="1",
        device="card1",
        model="m",
        vgpu="v",
        host="n",
        address="0:1:0.0",
        driver="570",
        serial="s",
        has_gpu_label=True,
    )
    assert parts.keys() - ours.all == {"hostname", "vgpu"}
    assert dict(ours.naming) == {
        "gpu": ("gpu",),
        "UUID": ("UUID", "uuid", "gpu_uuid"),
        "device": ("dev_file", "device"),
        "modelName": ("modelName", "model_name"),
        "Hostname": ("Hostname", "hostname"),
        "GPU_I_ID": ("GPU_I_ID",),
        "GPU_I_PROFILE": ("GPU_I_PROFILE",),
    }


def test_a_page_that_names_an_owner_keeps_what_else_it_says_of_it() -> None:
    came = {"UUID": "GPU-1", "label_team": "red", "label_x": "", "dra_pool_name": "p", "gpu_shared": "true"}
    plain = LabelPolicy().read_subject(came)
    assert (plain.came_extra, plain.came_shared) == ((), True)
    subject = LabelPolicy(has_pod_labels=True, has_claims=True).read_subject(came)
    assert subject.came_extra == (("label_team", "red"), ("dra_pool_name", "p"))
    assert not LabelPolicy().read_subject({"gpu_shared": ""}).came_shared


def test_the_labels_of_an_owner_and_its_claim() -> None:
    assert LabelPolicy().labels_of(A) == IS_A
    assert LabelPolicy().labels_of(A, uid="7", shared=True) == (*IS_A, ("pod_uid", "7"), *SHARED)
    claim = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="p", device="gpu-0")
    assert labels_of_claim(None) == ()
    assert labels_of_claim(claim) == (
        ("dra_claim_name", "c"),
        ("dra_claim_namespace", "ml"),
        ("dra_driver_name", "gpu.nvidia.com"),
        ("dra_pool_name", "p"),
        ("dra_device_name", "gpu-0"),
    )
    assert pod_labels_among([("pod", "a"), ("label_team", "red"), ("mylabel_x", "y")]) == (("label_team", "red"),)
    assert PodAdditions(uid="7", labels=(("label_team", "red"),)).added == (("pod_uid", "7"), ("label_team", "red"))
    assert PodAdditions(labels=(("label_team", "red"),)).added == (("label_team", "red"),)


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
