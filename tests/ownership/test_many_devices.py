"""What a node with very many devices costs: each list is gone through a fixed number of times, not once a device."""

from collections.abc import Iterator, Mapping

import pytest

from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, DeviceKey, Holder, Inventory, Match, Owners
from exporter.model.pages import JoinedPage, Subject
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Health, LookContext, Snapshot
from exporter.outputs import mapping
from exporter.outputs.output import Look
from exporter.outputs.page import node_page as page
from exporter.ownership import device_names
from exporter.ownership.explain import Explainer
from exporter.ownership.owners import Unmatched
from tests.support.owners import build_owners

A = Owner(namespace="ml", pod="train-0", container="main")
MANY = 300


class Counted(dict[Subject, int]):
    """Counts how often it is gone through."""

    rounds = 0

    def __iter__(self) -> Iterator[Subject]:
        self.rounds += 1
        return super().__iter__()


class CountedHolders(Mapping[DeviceKey, tuple[Holder, ...]]):
    """The same for holders."""

    def __init__(self, found: Mapping[DeviceKey, tuple[Holder, ...]]) -> None:
        self.rounds = 0
        self._found = found

    def __getitem__(self, key: DeviceKey) -> tuple[Holder, ...]:
        return self._found[key]

    def __iter__(self) -> Iterator[DeviceKey]:
        self.rounds += 1
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def elsewhere(subjects: Mapping[Subject, int]) -> Snapshot:
    """The page of another node."""
    assigned = [Assignment(owner=A, resource="nvidia.com/gpu", device_id=f"GPU-{number}") for number in range(MANY)]
    return Snapshot(
        node="ti",
        owners=build_owners(assigned, subjects),
        joined=JoinedPage(pieces=(), size=0, subjects=subjects, sample_count=MANY, rejected={}),
        health={"kubelet": Health(up=True)},
        assignments_age_seconds=0.5,
    )


# issue 7, line 23
def test_another_nodes_page_is_explained_once_and_not_for_every_id() -> None:
    subjects = Counted({Subject(uuid=f"GPU-other-{number}"): 1 for number in range(MANY)})
    snapshot = elsewhere(subjects)
    assert {match.reason for match in snapshot.owners.matches} == {Unmatched.OTHER_NODE}
    subjects.rounds = 0
    answer = mapping.debug(snapshot)
    assert f"none of its {MANY} UUIDs is among this kubelet's {MANY}" in answer["assigned"][-1]["explanation"]
    assert subjects.rounds < 10


# issue 7, line 23
def test_why_devices_have_no_owner_is_worked_out_once() -> None:
    matches = elsewhere({Subject(uuid="GPU-other"): 1}).owners.matches

    class Rows(list[Match]):
        rounds = 0

        def __iter__(self) -> Iterator[Match]:
            Rows.rounds += 1
            return super().__iter__()

    words = Explainer(Owners(matches=Rows(matches)), (), LookContext(), Inventory(), kubelet_answered=True)  # type: ignore[arg-type]
    said = {words.unowned(Subject(uuid=f"GPU-other-{number}")) for number in range(MANY)}
    assert said == {"not known: the page comes from another node than the kubelet's word"}
    assert Rows.rounds < 5


# issue 7, line 23; line 41 (page.py)
def test_the_page_goes_through_the_holders_a_few_times() -> None:
    subjects = {Subject(uuid=f"GPU-{number}"): 1 for number in range(MANY + 2)}
    snapshot = elsewhere(subjects)
    holders = CountedHolders(snapshot.owners.holders)
    seen = Snapshot(
        node="ti",
        owners=Owners(holders=holders, matches=snapshot.owners.matches),
        joined=snapshot.joined,
        health={},
        assignments_age_seconds=0.5,
    )
    html = b"".join(at_once(page.render(Look(snapshot=seen))).pieces).decode()
    assert f"{MANY + 2} GPUs seen." in html
    # the rows are those of no attribution
    assert f'id="figure-free">{MANY + 2}<' in html
    assert holders.rounds < 5


# issue 7, line 23
def test_mig_ids_by_profile_are_looked_up_and_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    work = 0
    plain = device_names._normal

    def counted(profile: str) -> str:
        nonlocal work
        work += 1
        return plain(profile)

    monkeypatch.setattr(device_names, "_normal", counted)
    refs = [DeviceRef(form="x", mig=f"MIG-{number}", profile="1g.10gb") for number in range(MANY)]
    subjects = {Subject(uuid=f"GPU-{number}", instance="7", profile="1g.10gb"): 1 for number in range(MANY)}
    devices, rivals = device_names.NodeDevices(subjects, Inventory()), device_names.rivals_among(refs)
    assert [devices.key_of(ref, rivals) for ref in refs] == [DeviceKey(uuid=ref.mig) for ref in refs]
    assert work < 10 * MANY


# issue 7, line 41 (owners.py): a parent narrows an id down, and an id without one may be of any parent
@pytest.mark.parametrize(
    ("others", "found"),
    [
        ((), True),
        ((DeviceRef(form="x", mig="MIG-2", profile="1g.10gb", parent="GPU-2"),), True),
        ((DeviceRef(form="x", mig="MIG-2", profile="1g.10gb", parent="GPU-1"),), False),
        ((DeviceRef(form="x", mig="MIG-2", profile="1g.10gb"),), False),
        ((DeviceRef(form="x", mig="MIG-2", profile="2g.20gb"),), True),
        # a share of the same instance is no rival
        ((DeviceRef(form="x", mig="MIG-1", profile="1g.10gb", parent="GPU-1", shared=True),), True),
    ],
)
def test_the_only_instance_of_a_profile_on_its_parent(others: tuple[DeviceRef, ...], *, found: bool) -> None:
    wanted = DeviceRef(form="x", mig="MIG-1", profile="1g.10gb", parent="GPU-1")
    subjects = {Subject(uuid=f"GPU-{number}", instance="7", profile="1g.10gb"): 1 for number in (1, 2)}
    devices, rivals = device_names.NodeDevices(subjects, Inventory()), device_names.rivals_among((wanted, *others))
    assert devices.key_of(wanted, rivals) == (
        DeviceKey(uuid="GPU-1", instance="7") if found else DeviceKey(uuid="MIG-1")
    )
    # without a parent there are two instances that it could be
    bare = DeviceRef(form="x", mig="MIG-9", profile="1g.10gb")
    assert devices.key_of(bare, device_names.rivals_among((bare,))) == DeviceKey(uuid="MIG-9")
