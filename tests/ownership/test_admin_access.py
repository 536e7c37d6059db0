"""Claims with admin access: who says which they are, and that their containers hold nothing."""

import json
from dataclasses import replace
from typing import Any

import pytest

from exporter.model.devices import Assignment, CdiPlace, Claim, DeviceKey, Inventory, InventoryGpu, PodResources
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.ownership.admin_access import AdminAccess, KnownClaims, read_checkpoint, read_status, uid_of
from exporter.ownership.device_ids import read_rules
from exporter.ownership.owners import Knowledge, read_assignment
from exporter.ownership.retention import Retained, answered, settled
from tests.ownership.test_claims_by_spec import DATA
from tests.support.owners import build_owners

DRIVER, NODE = "gpu.nvidia.com", "node-1"
LOOKING, HOLDING = "00000000-0000-4000-8000-00000000000a", "00000000-0000-4000-8000-00000000000b"


def claim(name: str, uid: str, device: str = "gpu-0", namespace: str = "monitoring", share: str = "") -> Claim:
    return Claim(
        namespace=namespace,
        name=name,
        driver=DRIVER,
        pool=NODE,
        device=device,
        cdi_names=(f"k8s.gpu.nvidia.com/claim={uid}-{device}",),
        share=share,
    )


def given(pod: str, of: Claim, container: str = "main") -> Assignment:
    owner = Owner(namespace=of.namespace, pod=pod, container=container)
    return Assignment(owner=owner, resource=of.driver, device_id=of.device_id, claim=of)


def results(*of: tuple[str, bool | None]) -> dict[str, Any]:
    """A ResourceClaimStatus with these devices, and what their adminAccess is; None: it is not there."""
    return {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
                    | ({} if admin is None else {"adminAccess": admin})
                    for device, admin in of
                ]
            }
        }
    }


def device(name: str) -> tuple[str, str, str]:
    return DRIVER, NODE, name


# issue 22, line 32
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        pytest.param({}, {}, id="not allocated"),
        pytest.param({"allocation": {"devices": {"results": [1, {}]}}}, {("", "", ""): False}, id="not as specified"),
        pytest.param(results(("gpu-0", None), ("gpu-1", False)), {device("gpu-0"): False, device("gpu-1"): False}),
        pytest.param(results(("gpu-0", True), ("gpu-1", True)), {device("gpu-0"): True, device("gpu-1"): True}),
        pytest.param(results(("gpu-0", True), ("gpu-1", None)), {device("gpu-0"): True, device("gpu-1"): False}),
        # two requests of a claim got one device, and one of them holds it
        pytest.param(results(("gpu-0", True), ("gpu-0", None)), {device("gpu-0"): False}),
        pytest.param(results(("gpu-0", None), ("gpu-0", True)), {device("gpu-0"): False}),
    ],
)
def test_a_claims_status_says_which_devices_are_looked_at(status: dict[str, Any], expected: AdminAccess) -> None:
    assert read_status(status) == expected


def recorded() -> Any:
    return json.loads((DATA / "driver-checkpoint.json").read_text())


def test_a_recorded_checkpoint_is_read() -> None:
    uid = "029de5eb-7ed4-4d03-b1aa-599fd310a30e"
    expected = {uid: {device("gpu-0"): False, device("gpu-3"): False}}
    content = recorded()
    assert read_checkpoint(content) == expected
    assert read_checkpoint({"checksum": 1, "v1": content["v1"]}) == expected
    assert read_checkpoint({"checksum": 1, "v2": content["v2"]}) == expected


# issue 22, line 32
@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("state", ["PrepareStarted", "PrepareCompleted"])
def test_a_checkpoint_says_which_claims_have_admin_access(version: str, state: str) -> None:
    content = recorded()
    for each in {"v1", "v2"} - {version}:
        del content[each]
    of_version = {LOOKING: {"checkpointState": state, "status": results(("gpu-0", True))}}
    content[version]["preparedClaims"] |= of_version
    assert read_checkpoint(content)[LOOKING] == {device("gpu-0"): True}


def test_what_the_later_version_of_a_checkpoint_says_counts() -> None:
    old, new = ({"preparedClaims": {LOOKING: {"status": results(("gpu-0", says))}}} for says in (False, True))
    assert read_checkpoint({"v1": old, "v2": new})[LOOKING] == {device("gpu-0"): True}


@pytest.mark.parametrize("content", [None, [], {}, {"checksum": 1}, {"v3": {"preparedClaims": {}}}, {"v1": 1}])
def test_a_checkpoint_of_another_form_is_refused(content: object) -> None:
    with pytest.raises(ValueError, match="none of v1, v2"):
        read_checkpoint(content)


# issue 22, line 32
@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(KnownClaims(), False, id="nobody says anything"),
        pytest.param(KnownClaims(admin_namespaces=frozenset({"monitoring"})), True, id="its namespace"),
        pytest.param(KnownClaims(by_uid={LOOKING: {device("gpu-0"): True}}), True, id="the checkpoint"),
        pytest.param(
            KnownClaims(by_uid={LOOKING: {device("gpu-0"): False}}, admin_namespaces=frozenset({"monitoring"})),
            False,
            id="the checkpoint knows better than the namespace",
        ),
        pytest.param(
            KnownClaims(by_name={("monitoring", "c"): (LOOKING, {device("gpu-0"): True})}), True, id="the API"
        ),
        pytest.param(
            KnownClaims(by_name={("monitoring", "c"): (HOLDING, {device("gpu-0"): True})}),
            False,
            id="the API knows another claim by that name",
        ),
        pytest.param(KnownClaims(by_uid={LOOKING: {device("gpu-7"): True}}), False, id="of another device"),
        pytest.param(
            KnownClaims(
                by_uid={LOOKING: {device("gpu-0"): True}},
                by_name={("monitoring", "c"): (LOOKING, {device("gpu-0"): False})},
            ),
            True,
            id="the checkpoint knows better than the API",
        ),
        pytest.param(
            KnownClaims(
                by_name={("monitoring", "c"): (LOOKING, {device("gpu-0"): False})},
                admin_namespaces=frozenset({"monitoring"}),
            ),
            False,
            id="the API knows better than the namespace",
        ),
    ],
)
def test_the_best_word_on_a_claim_counts(known: KnownClaims, *, expected: bool) -> None:
    assert uid_of(claim("c", LOOKING)) == LOOKING
    assert known.is_look(claim("c", LOOKING)) is expected


def test_a_claim_whose_names_say_no_uid_is_known_by_its_name() -> None:
    claims = KnownClaims(by_name={("monitoring", "c"): (LOOKING, {device("gpu-0"): True})})
    plain = claim("c", LOOKING)
    for names in ((), ("x=y",), (*plain.cdi_names, *claim("c", HOLDING).cdi_names)):
        assert uid_of(replace(plain, cdi_names=names)) == ""
        assert claims.is_look(replace(plain, cdi_names=names))
        assert not claims.is_look(replace(plain, cdi_names=names, name="other"))
    assert uid_of(replace(plain, cdi_names=("x=y", *plain.cdi_names * 2))) == LOOKING


def test_a_claim_is_asked_about_until_something_is_known_of_it() -> None:
    this = claim("c", LOOKING)
    by_uid = {LOOKING: {device("gpu-0"): False}}
    assert not KnownClaims().is_to_be_asked(this), "nobody asks about claims"
    assert KnownClaims(asked_of=frozenset()).is_to_be_asked(this)
    assert KnownClaims(asked_of=frozenset({claim("other", HOLDING)})).is_to_be_asked(this)
    assert not KnownClaims(asked_of=frozenset({this})).is_to_be_asked(this)
    assert not KnownClaims(asked_of=frozenset(), by_uid=by_uid).is_to_be_asked(this)


def test_no_more_devices_of_a_claim_are_read_than_it_may_have() -> None:
    many = results(*((f"gpu-{number}", True) for number in range(5000)))
    assert len(read_status(many)) == 4096


GPUS = tuple(InventoryGpu(uuid=f"GPU-{number}", device=f"nvidia{number}") for number in range(2))
SUBJECTS = {Subject(uuid=f"GPU-{number}"): 3 for number in range(2)}
MIG = {Subject(uuid="GPU-0", instance=number): 3 for number in ("1", "2")}


def knowledge(*claims: tuple[Claim, CdiPlace], looks: tuple[str, ...] = (LOOKING,)) -> Knowledge:
    """A checkpoint that has all these claims; `looks` have admin access."""
    by_uid: dict[str, dict[tuple[str, str, str], bool]] = {}
    for each, _ in claims:
        uid = uid_of(each)
        by_uid.setdefault(uid, {})[each.driver, each.pool, each.device] = uid in looks
    places = {name: place for each, place in claims for name in each.cdi_names}
    asked_of = frozenset(each for each, _ in claims)
    known = KnownClaims(by_uid=by_uid, asked_of=asked_of)
    return Knowledge(inventory=Inventory(gpus=GPUS, places=places), places=places, claims=known)


# issue 22, line 32
@pytest.mark.parametrize("share", ["", "share-1"])
def test_a_container_with_admin_access_holds_no_gpu_and_shares_none(share: str) -> None:
    looks = [(claim("c", LOOKING, f"gpu-{minor}"), CdiPlace(minor=str(minor))) for minor in (0, 1)]
    held = (claim("t", HOLDING, "gpu-0", "ml", share), CdiPlace(minor="0"))
    all_of = [given("dcgm-exporter", each) for each, _ in looks]
    owners = build_owners([*all_of, given("train", held[0])], SUBJECTS, knowledge(*looks, held))
    assert {key.uuid: [(each.owner.pod, each.shared) for each in of] for key, of in owners.holders.items()} == {
        "GPU-0": [("train", bool(share))]
    }
    assert [match.assignment.owner.pod for match in owners.matches] == ["train"]
    assert [(look.assignment, look.key) for look in owners.looks] == [
        (each, DeviceKey(uuid=f"GPU-{number}")) for number, each in enumerate(all_of)
    ]


# issue 22, line 32
def test_a_container_with_admin_access_holds_no_mig_instance() -> None:
    names = {number: f"gpu-0-mig-1g10gb-19-{number}" for number in ("1", "2")}
    looks = [(claim("c", LOOKING, name), CdiPlace(minor="0", instance=number)) for number, name in names.items()]
    held = (claim("t", HOLDING, names["1"], "ml"), CdiPlace(minor="0", instance="1"))
    assignments = [*(given("dcgm-exporter", each) for each, _ in looks), given("train", held[0])]
    owners = build_owners(assignments, MIG, knowledge(*looks, held))
    assert {key.instance: [(of.owner.pod, of.shared) for of in holders] for key, holders in owners.holders.items()} == {
        "1": [("train", False)]
    }
    assert owners.of(DeviceKey(uuid="GPU-0", instance="2")) == ()


# issue 22, line 32
def test_what_is_looked_at_is_taken_from_nobody_while_a_kubelet_starts() -> None:
    """The new pod of dcgm-exporter is listed before the training pod is listed again."""
    held, look = claim("t", HOLDING, namespace="ml"), claim("c", LOOKING)
    known = knowledge((held, CdiPlace(minor="0")), (look, CdiPlace(minor="0")))

    def read(assignment: Assignment) -> Any:
        return read_assignment(assignment, known)

    train, dcgm = given("train", held), given("dcgm-exporter", look)
    first = PodResources(assignments=frozenset({train}), listed=frozenset({("ml", "train")}))
    starting = PodResources(assignments=frozenset({dcgm}), listed=frozenset({("monitoring", "dcgm-exporter")}))
    state = answered(Retained(), first, now=0.0, reconnected=False, read=read)
    state = answered(state, starting, now=1.0, reconnected=True, read=read)
    assert state.assignments == {train, dcgm}
    assert settled(state, read, set(look.cdi_names)) is state
    # a claim that holds the device takes it
    other = given("other", claim("o", "00000000-0000-4000-8000-00000000000c"))
    taking = PodResources(assignments=frozenset({other}), listed=frozenset({("monitoring", "other")}))
    assert answered(state, taking, now=1.1, reconnected=False, read=read).assignments == {other}


# issue 22, line 32
@pytest.mark.parametrize("resource", ["gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_monitoring"])
def test_a_resource_of_a_rule_files_looks_holds_nothing(resource: str) -> None:
    content = {
        "devices": [{"resource": "gpu.intel.com/*", "id": "(?P<device>card[0-9]+)-(?P<share>[0-9]+)"}],
        "looks": ["gpu.intel.com/i915_monitoring", "gpu.intel.com/xe_*"],
    }
    known = Knowledge(rules=read_rules(content).rules)
    xpu_manager = Owner(namespace="monitoring", pod="xpu-manager", container="main")
    looks = Assignment(owner=xpu_manager, resource=resource, device_id="all")
    train = Owner(namespace="ml", pod="train", container="main")
    held = Assignment(owner=train, resource="gpu.intel.com/i915", device_id="card1-0")
    owners = build_owners([looks, held], {Subject(uuid="u", device="card1"): 1}, known)
    assert [(match.assignment, match.reason) for match in owners.matches] == [(held, "")]
    assert [look.assignment for look in owners.looks] == [looks]


@pytest.mark.parametrize("looks", ["gpu.intel.com/i915_monitoring", [1], [""], {"resource": "x"}])
def test_looks_of_another_form_are_refused(looks: object) -> None:
    with pytest.raises(ValueError, match="`looks` must be a list of resources"):
        read_rules({"looks": looks})
