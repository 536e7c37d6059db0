"""Whose a row is, as an object: nobody needs to read it out of the labels."""

from dataclasses import replace

import pytest

from exporter.model.devices import Claim, DeviceKey, Holder, Owners
from exporter.model.grants import Grant
from exporter.model.pages import UNREAD, UNREAD_OWNED, Row, Subject
from exporter.model.pods import Owner
from exporter.ownership.labels import LabelPolicy, PodAdditions
from exporter.ownership.sample_rows import Attribution, PerOwner

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
CAME = Owner(namespace="n", pod="came", container="c")
CLAIM = Claim(namespace="ml", name="gpu", driver="gpu.nvidia.com", pool="p", device="d")
OF_A = PodAdditions(uid="uid-a", labels=(("label_team", "red"),))
POLICY = LabelPolicy(has_pod_labels=True, has_claims=True)


def said_of(row: Row) -> tuple[Owner | None, bool, str, dict[str, str], Claim | None]:
    return row.owner, row.shared, row.uid, dict(row.pod_labels), row.claim


def rows_of(came: dict[str, str], *holders: Holder, policy: LabelPolicy = POLICY) -> list[object]:
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): holders})
    attribution = Attribution(owners, policy, of_pods={("ml", "a"): OF_A})
    (rows,) = attribution([(b"power", policy.read_subject({"UUID": "GPU-1", **came}))])
    return [said_of(row) for row in rows.each]


def held_by(owner: Owner, claim: Claim | None = None, *, shared: bool = False) -> Holder:
    return Holder(owner=owner, resource="nvidia.com/gpu", shared=shared, claim=claim)


NOBODYS: tuple[object, ...] = (None, False, "", {}, None)
IN_A = {"pod": "a", "namespace": "ml"}
IN_CAME = {"pod": "came", "namespace": "n", "container": "c"}


@pytest.mark.parametrize(
    ("came", "holders", "expected"),
    [
        ({}, [], [NOBODYS]),
        ({}, [held_by(A, CLAIM)], [(A, False, "uid-a", {"label_team": "red"}, CLAIM)]),
        ({}, [held_by(A, shared=True), held_by(B, shared=True)],
         [(A, True, "uid-a", {"label_team": "red"}, None), (B, True, "", {}, None)]),
        # what the page said of the same pod stays where nothing here says it
        ({**IN_A, "label_team": "blue", "label_tier": "1", "pod_uid": "old"}, [held_by(A)],
         [(A, False, "uid-a", {"label_tier": "1", "label_team": "red"}, None)]),
        ({"pod": "b", "namespace": "ml", "pod_uid": "uid-b"}, [held_by(B)], [(B, False, "uid-b", {}, None)]),
        # the page's word alone
        ({**IN_CAME, "pod_uid": "7", "label_x": "y", "dra_claim_name": "c", "gpu_shared": "true"}, [],
         [(CAME, True, "7", {"label_x": "y"}, None)]),
        ({"label_x": "y"}, [], [(None, False, "", {"label_x": "y"}, None)]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("names", [("pod", "namespace", "container"), ("x", "label_y", "z")])
def test_a_row_carries_its_owner_whatever_its_labels_are_called(
    came: dict[str, str], holders: list[Holder], expected: list[object], names: tuple[str, str, str]
) -> None:
    assert rows_of(came, *holders, policy=replace(POLICY, names=names)) == expected


def test_a_device_shown_once_is_nobodys_and_a_counter_has_a_row_that_is() -> None:
    both = held_by(A, shared=True), held_by(B, shared=True)
    assert rows_of({}, *both, policy=replace(POLICY, sharing="device")) == [NOBODYS]
    split = replace(POLICY, sharing="split")
    (rows,) = Attribution(Owners(holders={DeviceKey(uuid="GPU-1"): both}), split)(
        [(b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", split.read_subject({"UUID": "GPU-1"}))]
    )
    assert [row.owner for row in rows.each] == [A, B, None]


def test_a_row_with_the_page_s_word_is_shared_if_its_owner_has_a_share() -> None:
    wins = replace(POLICY, incoming_wins=True)
    of_a = {**IN_A, "container": "main"}
    for holders, is_shared in (
        ([held_by(A)], False),
        ([held_by(A, shared=True)], True),
        ([held_by(B, shared=True)], False),
        ([held_by(B, shared=True), held_by(A, shared=True)], True),
    ):
        assert rows_of(of_a, *holders, policy=wins) == [(A, is_shared, "", {}, None)]


def test_the_labels_of_a_row_are_those_of_the_owner_and_what_the_page_adds() -> None:
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): (held_by(A),)})
    subject = POLICY.read_subject({"UUID": "GPU-1", **IN_A, "label_team": "blue", "label_tier": "1", "pod_uid": "old"})
    (rows,) = Attribution(owners, POLICY, of_pods={("ml", "a"): OF_A})([(b"power", subject)])
    assert dict(rows.each[0].labels) == {
        "pod": "a", "namespace": "ml", "container": "main", "label_tier": "1", "pod_uid": "uid-a", "label_team": "red",
    }  # fmt: skip
    assert len(rows.each[0].labels) == 6
    assert rows.values is None, "the value goes out as it came"
    (nobodys,) = Attribution(Owners(), POLICY)([(b"power", POLICY.read_subject({"UUID": "GPU-1", "label_x": "y"}))])
    assert dict(nobodys.each[0].labels) == {"pod": "", "namespace": "", "container": "", "label_x": "y"}


DEVICE_1, DEVICE_2, NAMELESS = ({"UUID": "GPU-1"}, {"UUID": "GPU-2"}, {"Hostname": "n"})
IN_B = {"pod": "b", "namespace": "ml"}


@pytest.mark.parametrize(
    ("labels", "are_per_owner"),
    [
        ([DEVICE_1, DEVICE_1], [False, False]),
        ([{**DEVICE_1, **IN_A}], [False]),
        ([{**DEVICE_1, **IN_A}, {**DEVICE_1, **IN_A, "x": "y"}], [False, False]),
        ([{**DEVICE_1, **IN_A}, {**DEVICE_1, **IN_B}], [True, True]),
        # the row without an owner, and another device's
        ([DEVICE_1, {**DEVICE_1, **IN_A}, {**DEVICE_1, **IN_B}, DEVICE_2], [True, True, True, False]),
        ([{**DEVICE_1, **IN_A}, {**DEVICE_2, **IN_B}], [False, False]),
        # two pods that had one name
        ([{**DEVICE_1, **IN_A, "pod_uid": "1"}, {**DEVICE_1, **IN_A, "pod_uid": "2"}], [True, True]),
        ([{**DEVICE_1, **IN_A, "pod_uid": "1"}, {**DEVICE_1, **IN_A}], [False, False]),
        # a virtual GPU's row, with and without an owner
        ([{**DEVICE_1, **IN_A, "vgpu": "5"}, DEVICE_1], [True, True]),
        ([{**DEVICE_1, "vgpu": "5"}, DEVICE_1], [True, False]),
        ([{**NAMELESS, **IN_A}, {**NAMELESS, **IN_B}], [False, False]),
    ],
)
def test_which_samples_are_one_owner_s_part_already(labels: list[dict[str, str]], are_per_owner: list[bool]) -> None:
    subjects: dict[Subject, Subject] = {}
    for each in labels:
        read = POLICY.read_subject(each)
        subjects.setdefault(read, read)
    samples = [(b"power", subjects[POLICY.read_subject(each)]) for each in labels]
    others = [(b"clock", samples[0][1])]
    per_owner = PerOwner([*samples, *others])
    assert [sample in per_owner for sample in samples] == are_per_owner
    assert others[0] in per_owner or not samples[0][1].vgpu
    assert bool(per_owner) == any(of for of, (_, one) in zip(are_per_owner, samples, strict=True) if one.came_with)


def test_values_that_instances_repeat_are_read_first_for_their_parts() -> None:
    cut, whole = Subject(uuid="GPU-1", instance="7"), Subject(uuid="GPU-1")
    divided, copied = (Attribution(Owners(), replace(POLICY, sharing=sharing)) for sharing in ("split", "copy"))
    families = divided.read_first([whole, cut])
    assert families >= {b"DCGM_FI_DEV_POWER_USAGE", b"DCGM_FI_PROF_GR_ENGINE_ACTIVE"}
    assert b"DCGM_FI_DEV_GPU_TEMP" not in families
    assert divided.read_first([whole]) == copied.read_first([whole, cut]) == frozenset()


def test_a_whole_gpu_s_value_is_as_it_came_and_an_instance_has_its_part() -> None:
    split = replace(POLICY, sharing="split")
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): (held_by(A),), DeviceKey(uuid="GPU-1", instance="7"): ()})
    attribution = Attribution(owners, split)
    samples = [(b"DCGM_FI_DEV_POWER_USAGE", Subject(uuid="GPU-1", instance=instance)) for instance in ("", "7")]
    whole, cut = attribution(samples)
    assert whole.values is None
    assert cut.values is not None
    assert cut.values(b"series", b"80.0") == (b"80.0",)


def test_a_counter_that_nobody_reads_twice_is_not_divided() -> None:
    once = replace(POLICY, sharing="split", divides_counters=False)
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): (held_by(A),)})
    sample = (b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Subject(uuid="GPU-1"))
    (rows,) = Attribution(owners, once)([sample])
    assert ([row.owner for row in rows.each], rows.values) == ([None], None)


def test_rows_stay_while_holders_and_labels_of_pods_do() -> None:
    subject = Subject(uuid="GPU-1")
    of_pods = {("ml", "a"): OF_A}
    holders = (held_by(A),)

    def attribution(
        held: tuple[Holder, ...], of: dict[tuple[str, str], PodAdditions], before: Attribution | None
    ) -> Attribution:
        return Attribution(Owners(holders={DeviceKey(uuid="GPU-1"): held}), POLICY, of_pods=of, before=before)

    first = attribution(holders, of_pods, None)
    (rows,) = first([(b"power", subject)])
    assert attribution(holders, of_pods, first)([(b"power", subject)])[0] is rows
    (others,) = attribution((held_by(B),), of_pods, first)([(b"power", subject)])
    assert [row.owner for row in others.each] == [B]
    (relabelled,) = attribution(holders, {}, first)([(b"power", subject)])
    assert [row.uid for row in relabelled.each] == [""]


@pytest.mark.parametrize(("memory_mib", "parts"), [((1.0, 3.0), (b"20.0", b"60.0")), ((1.0, None), (b"40.0", b"40.0"))])
def test_a_value_is_divided_by_what_an_allocator_granted(
    memory_mib: tuple[float | None, ...], parts: tuple[bytes, ...]
) -> None:
    holders = tuple(
        replace(held_by(owner, shared=True), grant=Grant(allocator="HAMi", memory_mib=memory))
        for owner, memory in zip((A, B), memory_mib, strict=True)
    )
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): holders})
    power, energy = Attribution(owners, replace(POLICY, sharing="split"))(
        [
            (name, Subject(uuid="GPU-1"))
            for name in (b"DCGM_FI_DEV_POWER_USAGE", b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
        ]
    )
    assert power.values is not None
    assert (*power.values(b"series", b"80.0"),) == parts
    assert [row.owner for row in energy.each] == [A, B, None]


SHARES = held_by(A, shared=True), held_by(B, shared=True)
ENERGY, POWER = b"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", b"DCGM_FI_DEV_POWER_USAGE"


@pytest.mark.parametrize(
    ("family", "labels", "holders", "owners", "is_divided"),
    [
        (ENERGY, DEVICE_1, (), [None], True),
        (ENERGY, DEVICE_1, (held_by(A),), [A, None], True),
        (ENERGY, DEVICE_1, SHARES, [A, B, None], True),
        (POWER, DEVICE_1, (), [None], False),
        (POWER, DEVICE_1, (held_by(A),), [A], False),
        (POWER, DEVICE_1, SHARES, [A, B], True),
        (b"DCGM_FI_DEV_GPU_TEMP", DEVICE_1, SHARES, [A, B], False),
        # the page's word alone
        (ENERGY, {**DEVICE_1, **IN_CAME}, (), [CAME, None], True),
        (POWER, {**DEVICE_1, **IN_CAME}, (), [CAME], False),
        (POWER, {**DEVICE_1, **IN_CAME}, (held_by(A),), [A], False),
        # a virtual GPU's row is one owner's part
        (ENERGY, {**DEVICE_1, **IN_CAME, "vgpu": "5"}, (), [CAME], False),
        (ENERGY, {**DEVICE_1, "vgpu": "5"}, (held_by(A),), [A], False),
        (POWER, {**DEVICE_1, "vgpu": "5"}, SHARES, [None], False),
        # of no GPU
        (ENERGY, NAMELESS, (held_by(A),), [None], False),
    ],
)
def test_whose_rows_a_divided_sample_has(
    family: bytes, labels: dict[str, str], holders: tuple[Holder, ...], owners: list[Owner | None], *, is_divided: bool
) -> None:
    split = replace(POLICY, sharing="split")
    held = Owners(holders={DeviceKey(uuid="GPU-1"): holders, DeviceKey(uuid=""): (held_by(B),)})
    (rows,) = Attribution(held, split)([(family, split.read_subject(labels))])
    assert [row.owner for row in rows.each] == owners
    assert (rows.values is not None) == is_divided


def test_a_counter_of_several_owners_rows_is_not_divided_again() -> None:
    split = replace(POLICY, sharing="split")
    subjects = [split.read_subject({**DEVICE_1, **labels}) for labels in (IN_A, IN_B, {})]
    owners = Owners(holders={DeviceKey(uuid="GPU-1"): SHARES})
    rows = Attribution(owners, split)([(ENERGY, subject) for subject in subjects])
    assert [[row.owner.pod if row.owner else None for row in each.each] for each in rows] == [["a"], ["b"], [None]]
    assert [each.values for each in rows] == [None] * 3


def test_samples_of_devices_beyond_the_limit_go_out_as_they_came() -> None:
    attribution = Attribution(Owners(), POLICY)
    nobodys, owned = attribution([(POWER, UNREAD), (POWER, UNREAD_OWNED)])
    assert [[*row.labels] for row in owned.each] == [[]]
    assert [dict(row.labels) for row in nobodys.each] == [{"pod": "", "namespace": "", "container": ""}]
