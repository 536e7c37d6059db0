"""Devices that the kubelet and the samples call by names that have nothing in common: each is one device, not two."""

from collections.abc import Mapping, Sequence

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.config.parsers import SHIPPED_RULES
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import NONE_ALLOCATABLE, Allocatable, Assignment, DeviceKey, Owners
from exporter.model.grants import Grant, Word
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.device_ids import read_rules
from exporter.ownership.other_names import NamesOfKubelet, joined
from exporter.ownership.owners import Knowledge, Unmatched
from tests.support.owners import build_owners

A, B, C = (Owner(namespace="ml", pod=pod, container="main") for pod in "abc")
AMD = "amd.com/gpu"
KNOWLEDGE = Knowledge(rules=read_rules(yaml.safe_load(SHIPPED_RULES["amd"].read_text())).rules)
ADDRESSES = [f"0000:{bus:02x}:00.0" for bus in range(0xC0, 0xC8)]
UUIDS = [f"{number:08x}-0000-1000-804c-3b58bf67050e" for number in range(8)]
OFFERED: Allocatable = {AMD: dict.fromkeys(ADDRESSES, 1)}


def page(*came_with: Owner | None, with_uuid: bool = True) -> dict[Subject, int]:
    """GPUs of AMD's, each with the owner that the page names. Each has samples that name nobody, too."""
    subjects: dict[Subject, int] = {}
    for number, owner in enumerate(came_with):
        uuid = UUIDS[number] if with_uuid else ""
        for came in {owner, None}:
            subjects[Subject(uuid=uuid, index=f"{number}", model="MI300X", came_with=came, has_gpu_label=True)] = 5
    return subjects


def hold(*owners: Owner | None) -> list[Assignment]:
    """The first GPUs by their addresses, each with its owner."""
    pairs = zip(owners, ADDRESSES, strict=False)
    return [Assignment(owner=owner, resource=AMD, device_id=address) for owner, address in pairs if owner]


def owned(owners: Owners) -> dict[str, list[str]]:
    return {key.uuid: [holder.owner.pod for holder in of] for key, of in sorted(owners.holders.items())}


FOUR = (None, None, None, None)


# issue 22, line 29
@pytest.mark.parametrize("with_uuid", [True, False])
@pytest.mark.parametrize(
    ("came_with", "held", "offered", "expected"),
    [
        # the page names as many devices of each owner as the kubelet handed it
        ((A, B, A, None), (B, A, A), OFFERED, {0: "a", 1: "b", 2: "a"}),
        ((B, A, None, None), (A, B), NONE_ALLOCATABLE, {0: "b", 1: "a"}),
        # a page that is older than the second of its pods
        ((A, None, None, None), (A, B), OFFERED, {0: "a"}),
        # one container holds all that there are
        (FOUR, (A, A, A, A), {AMD: dict.fromkeys(ADDRESSES[:4], 1)}, {0: "a", 1: "a", 2: "a", 3: "a"}),
        (FOUR, (A, A, A, A), NONE_ALLOCATABLE, {0: "a", 1: "a", 2: "a", 3: "a"}),
        # of more than the page has nobody can say which ones it has
        (FOUR, (A, A, A, A), OFFERED, {}),
        # which one each has is not clear
        (FOUR, (A, A, A), {AMD: dict.fromkeys(ADDRESSES[:4], 1)}, {}),
        (FOUR, (A, A, B, B), OFFERED, {}),
        # the page names others than the kubelet: of before, or of another node
        ((C, C, C, C), (A, A, A, A), NONE_ALLOCATABLE, {}),
        ((A, A, None, None), (A,), OFFERED, {}),
    ],
)
def test_whose_they_are_is_joined_only_where_it_is_clear(
    came_with: Sequence[Owner | None],
    held: Sequence[Owner],
    offered: Allocatable,
    expected: Mapping[int, str],
    *,
    with_uuid: bool,
) -> None:
    owners = build_owners(hold(*held), page(*came_with, with_uuid=with_uuid), KNOWLEDGE, offered)
    names = UUIDS if with_uuid else [str(number) for number in range(8)]
    shown = {name: of for name, of in owned(owners).items() if name in names}
    assert shown == {names[number]: [pod] for number, pod in expected.items()}
    reasons = [match.reason for match in owners.matches]
    assert reasons.count("") == len(expected)
    assert set(reasons) <= {"", Unmatched.UNNAMED}
    # no device is there twice: what has no device of its own is one that the page has
    devices = {key for key in {*owners.holders, *(key for _, key in owners.offered)} if key.uuid not in names}
    beyond = max(0, len({*ADDRESSES[: len(held)], *(offered.get(AMD, ()))}) - len(came_with))
    assert len(devices - owners.unnamed) == beyond
    assert owners.unnamed <= devices


# issue 22, line 29
def test_a_pod_that_the_page_names_without_a_container_is_its_only_holder() -> None:
    """Habana's exporter names pods, and no containers."""
    pod = Owner(namespace="ml", pod="a", container="")
    assert owned(build_owners(hold(A, B), page(pod, None, None), KNOWLEDGE)) == {
        UUIDS[0]: ["a"],
        ADDRESSES[1]: ["b"],
    }
    two = Owner(namespace="ml", pod="a", container="other")
    assert UUIDS[0] not in owned(build_owners(hold(A, two), page(pod, None, None), KNOWLEDGE))


# issue 22, line 29
def test_a_device_that_something_else_holds_is_not_joined() -> None:
    """One GPU of NVIDIA's beside one of AMD's, and an id of which nobody knows what it is."""
    both = {**page(None), Subject(uuid="GPU-1", index="0"): 3}
    nvidia = Assignment(owner=B, resource="nvidia.com/gpu", device_id="GPU-1")
    assert owned(build_owners([*hold(A), nvidia], both, KNOWLEDGE)) == {UUIDS[0]: ["a"], "GPU-1": ["b"]}
    partition = Assignment(owner=B, resource=AMD, device_id="amdgpu_xcp_3")
    assert owned(build_owners([*hold(A), partition], page(None), KNOWLEDGE)) == {ADDRESSES[0]: ["a"]}


SWITCH = Assignment(owner=C, resource="nvidia.com/GA100_A100_NVSWITCH", device_id="42")
UNKNOWN = Assignment(owner=B, resource=AMD, device_id="amdgpu_xcp_3")
TOKEN = Assignment(owner=B, resource="nvidia.com/gpu", device_id="GPU-9567a9e7-341e-bb7e-fcf5-788d8caa50f9-4")
RESERVED = Assignment(
    owner=B, resource=AMD, device_id=UUIDS[3], word=Word(grant=Grant(allocator="x"), ref=DeviceRef(form="reserved"))
)


@pytest.mark.parametrize(
    ("others", "is_joined"),
    [
        # what is no GPU takes none
        ([SWITCH], True),
        ([UNKNOWN], False),
        ([UNKNOWN, SWITCH], False),
        ([TOKEN], False),
        # a word that names no device yet
        ([RESERVED], False),
    ],
)
def test_one_container_holds_all_only_if_nothing_else_may_hold_some(
    others: list[Assignment], *, is_joined: bool
) -> None:
    holder = owned(build_owners([*hold(A), *others], page(None), KNOWLEDGE))
    assert holder == {UUIDS[0] if is_joined else ADDRESSES[0]: ["a"]}


def test_an_id_on_offer_that_names_its_device_leaves_it_out_of_the_join() -> None:
    offered = {AMD: {ADDRESSES[0]: 1}, "nvidia.com/gpu": {UUIDS[1]: 1}}
    owners = build_owners(hold(A), page(None, None), KNOWLEDGE, offered)
    assert owned(owners) == {UUIDS[0]: ["a"]}
    assert not owners.unnamed


# issue 22, line 29
@pytest.mark.parametrize("part", ["device", "address"])
@pytest.mark.parametrize("written", ["0000:c1:00.0", "0000:C1:00.0", "00000000:C1:00.0", "0000:c1:00"])
def test_an_address_on_pci_joins_however_it_is_written(written: str, part: str) -> None:
    other = "00000000:C0:00.0"
    seen = {
        Subject(uuid=UUIDS[number], index=f"{number}", has_gpu_label=True, **{part: address}): 5  # type: ignore[arg-type]
        for number, address in enumerate((written, other))
    }
    owners = build_owners(hold(A, B), seen, KNOWLEDGE)
    assert owned(owners) == {UUIDS[0]: ["b"], UUIDS[1]: ["a"]}
    assert not owners.unnamed


NAMES = st.integers(0, 7).map(lambda number: DeviceKey(uuid=f"k{number}"))
DEVICES = st.integers(0, 7).map(lambda number: DeviceKey(uuid=f"d{number}"))
OWNERS = st.sampled_from((A, B, C))


K0, K1, D0, D1 = (DeviceKey(uuid=name) for name in ("k0", "k1", "d0", "d1"))
NOBODY: frozenset[Owner] = frozenset()


@pytest.mark.parametrize(
    ("held", "offered", "are_all", "of_page", "expected"),
    [
        ({K0: {A}, K1: {A}}, (), True, {D1: NOBODY, D0: NOBODY}, {K0: D0, K1: D1}),
        ({K0: {A}, K1: {A}}, (K0, K1), True, {D0: NOBODY, D1: NOBODY}, {K0: D0, K1: D1}),
        # the page names an owner of one of them
        ({K0: {A}, K1: {A}}, (), True, {D0: {C}, D1: NOBODY}, {}),
        # something else was handed out, and nobody knows what
        ({K0: {A}, K1: {A}}, (), False, {D0: NOBODY, D1: NOBODY}, {}),
        ({K0: {A}, K1: {B}}, (), True, {D0: NOBODY, D1: NOBODY}, {}),
        ({K0: {A, B}}, (), True, {D0: NOBODY}, {}),
        # one of them is free
        ({K0: {A}}, (K1,), True, {D0: NOBODY}, {}),
        ({K0: {A}}, (K0,), True, {D0: NOBODY, D1: NOBODY}, {}),
        ({K0: {A}, K1: {A}}, (), True, {D0: NOBODY}, {}),
        # by what the page says, whatever else was handed out
        ({K0: {A}, K1: {B}}, (), False, {D0: {B}, D1: {A}}, {K0: D1, K1: D0}),
        ({K0: {A}, K1: {B}}, (), False, {D0: {B, A}, D1: {A}}, {K0: D1}),
        ({K0: {A, B}, K1: {B}}, (), False, {D0: {B}, D1: {A}}, {K1: D0}),
    ],
)
def test_names_are_joined_to_the_devices_of_a_page(
    held: Mapping[DeviceKey, set[Owner]],
    offered: tuple[DeviceKey, ...],
    are_all: bool,
    of_page: Mapping[DeviceKey, set[Owner]],
    expected: Mapping[DeviceKey, DeviceKey],
) -> None:
    assert joined(NamesOfKubelet(held=held, offered=offered, are_all=are_all), of_page) == expected


# issue 22, line 29
@given(
    held=st.dictionaries(NAMES, st.frozensets(OWNERS, min_size=1, max_size=2), max_size=6),
    offered=st.frozensets(NAMES),
    of_page=st.dictionaries(DEVICES, st.frozensets(OWNERS, max_size=2), max_size=6),
)
def test_no_device_gets_an_owner_that_the_page_contradicts(
    held: Mapping[DeviceKey, frozenset[Owner]],
    offered: frozenset[DeviceKey],
    of_page: Mapping[DeviceKey, frozenset[Owner]],
) -> None:
    renamed = joined(NamesOfKubelet(held=held, offered=offered), of_page)
    assert len(set(renamed.values())) == len(renamed), "two names are of one device"
    for name, device in renamed.items():
        assert not of_page[device] or of_page[device] == held[name]
