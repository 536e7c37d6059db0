"""What the builder of owners keeps from one answer of the kubelet to the next, and what it reads anew."""

from collections.abc import Iterator, Mapping

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import NONE_ALLOCATABLE, Assignment, CdiPlace, Claim, DeviceKey, Owners, SliceDevice
from exporter.model.grants import Grant, Word
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.admin_access import KnownClaims
from exporter.ownership.device_ids import RULES, Rule, read_rules
from exporter.ownership.owners import Knowledge, OwnersBuilder, Unmatched, needs_slices
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
B = Owner(namespace="web", pod="serve-1", container="server")
CLAIM = Claim(namespace="ml", name="c", driver="gpu.nvidia.com", pool="n", device="gpu-0")
BY_CLAIM = Assignment(owner=A, resource=CLAIM.driver, device_id=CLAIM.device_id, claim=CLAIM)
SLICES = {CLAIM.slice_name: SliceDevice(uuid="GPU-1")}
NPU = Assignment(owner=A, resource="x/npu", device_id="npu-3")
OF_NPU = read_rules({"devices": [{"resource": "x/*", "id": "npu-(?P<index>[0-9]+)"}]}).rules


def holders(owners: Owners) -> dict[str, list[Owner]]:
    return {key.uuid: [holder.owner for holder in of] for key, of in owners.holders.items()}


def built(builder: OwnersBuilder, knowledge: Knowledge, *assignments: Assignment) -> dict[str, list[Owner]]:
    return holders(builder.build(assignments, {}, knowledge, NONE_ALLOCATABLE))


def test_what_slices_and_rules_say_counts_as_long_as_they_say_it() -> None:
    builder = OwnersBuilder()
    for _ in range(2):
        assert built(builder, Knowledge(slices=SLICES), BY_CLAIM, NPU) == {"GPU-1": [A]}
        assert built(builder, Knowledge(rules=OF_NPU), BY_CLAIM, NPU) == {"3": [A]}
        assert built(builder, Knowledge(), BY_CLAIM, NPU) == {}
        assert built(builder, Knowledge(rules=OF_NPU, slices=SLICES), BY_CLAIM, NPU) == {"3": [A], "GPU-1": [A]}


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        (KnownClaims(), {"GPU-1": [A]}),
        # the claim has admin access, or it may turn out that it has
        (KnownClaims(admin_namespaces=frozenset({"ml"})), {}),
        (KnownClaims(asked_of=frozenset()), {}),
        (KnownClaims(asked_of=frozenset({CLAIM})), {"GPU-1": [A]}),
    ],
)
def test_what_is_known_of_a_claim_counts_at_once(now: KnownClaims, expected: Mapping[str, list[Owner]]) -> None:
    builder = OwnersBuilder()
    assert built(builder, Knowledge(slices=SLICES), BY_CLAIM) == {"GPU-1": [A]}
    assert built(builder, Knowledge(slices=SLICES, claims=now), BY_CLAIM) == expected
    assert built(builder, Knowledge(slices=SLICES), BY_CLAIM) == {"GPU-1": [A]}


class _Rules(list[Rule]):
    """Counts how often it is gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[Rule]:
        self.rounds += 1
        return super().__iter__()


def test_an_id_is_read_once_while_the_rules_are_the_same() -> None:
    rules = _Rules(RULES)
    knowledge = Knowledge(rules=rules)
    one, other = (Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"GPU-{n}") for n in (1, 2))
    builder = OwnersBuilder()
    assert [built(builder, knowledge, one) for _ in range(3)] == [{"GPU-1": [A]}] * 3
    assert rules.rounds == 1
    assert built(builder, knowledge, one, other) == {"GPU-1": [A], "GPU-2": [A]}
    assert rules.rounds == 2
    # what is gone is forgotten, and read when it comes again
    assert built(builder, knowledge, other) == {"GPU-2": [A]}
    assert built(builder, knowledge, one) == {"GPU-1": [A]}
    assert rules.rounds == 3


def test_holders_that_stay_are_the_same_objects() -> None:
    one, other = (Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"GPU-{n}") for n in (1, 2))
    builder = OwnersBuilder()
    before = builder.build([one, other], {}, Knowledge(), NONE_ALLOCATABLE)
    others = Assignment(owner=B, resource="nvidia.com/gpu", device_id="GPU-2")
    after = builder.build([one, others], {}, Knowledge(), NONE_ALLOCATABLE)
    assert after.holders[DeviceKey(uuid="GPU-1")] is before.holders[DeviceKey(uuid="GPU-1")]
    assert holders(after) == {"GPU-1": [A], "GPU-2": [B]}
    assert holders(builder.build([], {}, Knowledge(), NONE_ALLOCATABLE)) == {}


def test_ids_that_count_units_are_kept_apart() -> None:
    units = Assignment(owner=B, resource="x/units", device_id="GPU-9", units=4)
    owners = build_owners([NPU, units])
    assert owners.units == (units,)
    assert [match.assignment for match in owners.matches] == [NPU]


def test_a_look_at_a_device_that_nobody_knows_is_a_look() -> None:
    knowledge = Knowledge(claims=KnownClaims(admin_namespaces=frozenset({"ml"})))
    owners = build_owners([BY_CLAIM], {}, knowledge)
    assert (owners.holders, owners.matches) == ({}, ())
    (look,) = owners.looks
    assert (look.assignment, look.key) == (BY_CLAIM, None)
    assert look.ref is not None
    assert (look.ref.form, look.ref.is_look) == ("admin access", True)


@pytest.mark.parametrize(
    ("rules", "form", "index"), [(OF_NPU, OF_NPU[0].form, "3"), (RULES, "Ascend", "")], ids=["a rule", "no rule"]
)
def test_a_token_without_a_device_says_whose_it_is(rules: tuple[Rule, ...], form: str, index: str) -> None:
    token = Assignment(owner=A, resource="x/npu", device_id="npu-3", word=Word(grant=Grant(allocator="Ascend")))
    (match,) = build_owners([token], {}, Knowledge(rules=rules)).matches
    assert (match.key, match.reason) == (None, Unmatched.ALLOCATOR)
    assert match.ref is not None
    assert (match.ref.allocator, match.ref.form, match.ref.index) == ("Ascend", form, index)


ON_PAGE = {Subject(uuid="GPU-1", index="0", device="nvidia0"): 3}
RESOURCE = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("means", "others", "offered", "page", "expected"),
    [
        ({"uuid": "GPU-1"}, [], [], ON_PAGE, "GPU-1"),
        ({"uuid": "1"}, [], [], {Subject(uuid="GPU-1"): 3, Subject(uuid="1"): 1}, "1"),
        ({"index": "0"}, [], [], ON_PAGE, "GPU-1"),
        ({"device": "nvidia0"}, [], [], ON_PAGE, "GPU-1"),
        # the node has no such GPU
        ({"uuid": "GPU-9"}, [], [], ON_PAGE, None),
        ({"index": "7"}, [], [], ON_PAGE, None),
        ({"device": "nvidia7"}, [], [], ON_PAGE, None),
        ({"device": "nvidia7", "index": "7"}, [], [], ON_PAGE, None),
        # a page lacks a lost GPU, which the kubelet's ids name, in use or on offer
        ({"uuid": "GPU-9"}, ["GPU-9"], [], ON_PAGE, "GPU-9"),
        ({"uuid": "GPU-9"}, [], ["GPU-9"], ON_PAGE, "GPU-9"),
        ({"uuid": "GPU-9"}, ["GPU-8", "tpu"], ["GPU-7", "tpu"], ON_PAGE, None),
        # without a page nobody can say what the node lacks
        ({"uuid": "GPU-9"}, [], [], {}, "GPU-9"),
        ({"index": "7"}, [], [], {}, "7"),
    ],
)
def test_a_word_that_names_a_gpu_of_another_node_names_none(
    means: dict[str, str], others: list[str], offered: list[str], page: Mapping[Subject, int], expected: str | None
) -> None:
    word = Word(grant=Grant(allocator="HAMi"), ref=DeviceRef(form="", **means))  # type: ignore[arg-type]  # texts only
    token = Assignment(owner=A, resource=RESOURCE, device_id="GPU-5-0", word=word)
    by_ids = [Assignment(owner=B, resource=RESOURCE, device_id=device_id) for device_id in others]
    owners = build_owners([token, *by_ids], page, None, {RESOURCE: dict.fromkeys(offered, 1)})
    (match,) = [match for match in owners.matches if match.assignment is token]
    assert (match.key and match.key.uuid) == expected
    assert (match.reason == Unmatched.ALLOCATOR) is (expected is None)


def test_words_of_other_pods_prove_no_gpu() -> None:
    """Nor does a word make an id of another container foreign."""
    word = Word(grant=Grant(allocator="HAMi"), ref=DeviceRef(form="", uuid="GPU-9"))
    tokens = [Assignment(owner=owner, resource=RESOURCE, device_id="GPU-5-0", word=word) for owner in (A, B)]
    other = Assignment(owner=B, resource=RESOURCE, device_id="nvidia7")
    owners = build_owners([*tokens, other], ON_PAGE)
    assert [(match.assignment.device_id, match.key and match.key.uuid) for match in owners.matches] == [
        ("GPU-5-0", None),
        ("GPU-5-0", None),
        ("nvidia7", "nvidia7"),
    ]


def of_cdi(name: str, driver: str = "gpu.nvidia.com") -> Assignment:
    claim = Claim(namespace="ml", name="c", driver=driver, pool="n", device="gpu-0", cdi_names=(name,))
    return Assignment(owner=A, resource=driver, device_id=claim.device_id, claim=claim)


UUID = "9567a9e7-341e-bb7e-fcf5-788d8caa50f9"


@pytest.mark.parametrize(
    ("assignment", "place", "needs"),
    [
        (NPU, None, False),
        (BY_CLAIM, None, True),
        (of_cdi(f"nvidia.com/gpu=GPU-{UUID}"), None, False),
        # a name with an instance's UUID says neither its GPU nor its profile
        (of_cdi(f"nvidia.com/gpu=MIG-{UUID}"), None, True),
        (of_cdi("x=y"), CdiPlace(minor="0"), False),
        (of_cdi("x=y"), CdiPlace(minor="0", instance="3"), False),
        # a virtual machine's GPU
        (of_cdi("x=y"), CdiPlace(minor=""), False),
        # another vendor's
        (of_cdi("x=y", "gpu.intel.com"), CdiPlace(minor=""), True),
    ],
)
def test_which_claims_only_resource_slices_tell(assignment: Assignment, place: CdiPlace | None, *, needs: bool) -> None:
    assert needs_slices(assignment, {"x=y": place} if place else {}) is needs
