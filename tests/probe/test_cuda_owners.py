"""Whose processes are that the probe counts, and which devices they number."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.cuda import UNKNOWN_DEVICE, CudaDevice, CudaProcess, ProcessId, SeenProcess
from exporter.model.devices import DeviceKey, Holder, Inventory, InventoryGpu, Owners
from exporter.model.measured import ProcessPlace
from exporter.model.pods import Owner, PodInfo
from exporter.probe import cuda_owners
from exporter.probe.cuda_owners import OwnerFacts, ProcessOwner, ProcessOwners
from exporter.usage.process_owners import containers_of_pods

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
IDS = {A: "aa" * 32, B: "bb" * 32}
UIDS = {A: "0f5b2c31-7d0e-4a52-9c7e-5d1f0a9b8c7d", B: "e2a4c6d8-1111-4222-8333-444455556666"}
GPU = "GPU-{:08d}-1111-2222-3333-444455556666".format
KEYS = [DeviceKey(uuid=GPU(number)) for number in range(4)]
DOCKER = ProcessPlace(container_id="cc" * 32, is_of_pod=False, engine="docker")
TICK = 10_000_000


def pod(owner: Owner) -> PodInfo:
    ids = {owner.container: f"containerd://{IDS[owner]}"}
    return PodInfo(namespace=owner.namespace, name=owner.pod, uid=UIDS[owner], labels={}, container_ids=ids)


def place(owner: Owner) -> ProcessPlace:
    return ProcessPlace(container_id=IDS[owner], pod_uid=UIDS[owner])


def facts(*owners: Owner, held: Mapping[int, tuple[Owner, ...]] | None = None) -> OwnerFacts:
    """A node with four GPUs: A holds 1 and 3, B holds 3. `owners` are those whose containers are known."""
    held = {1: (A,), 3: (A, B)} if held is None else held
    return OwnerFacts(
        tables=[containers_of_pods(pod(owner) for owner in owners)],
        owners=Owners(
            holders={
                KEYS[number]: tuple(Holder(owner=owner, resource="nvidia.com/gpu", shared=False) for owner in of)
                for number, of in held.items()
            }
        ),
        inventory=Inventory(gpus=tuple(InventoryGpu(uuid=GPU(each), index=str(each)) for each in range(4))),
    )


KNOWN = facts(A, B)


def process(pid: int = 7, cgroup: int = 100, visible: str | None = None, *, ended: bool = False) -> CudaProcess:
    id_ = ProcessId(pid, 5 * TICK + 1234567)
    return CudaProcess(id=id_, cgroup_id=cgroup, visible=visible, ended_ns=9 if ended else None)


def seen(pid: int, where: ProcessPlace | None, visible: str | None = None, ticks: int = 5) -> SeenProcess:
    return SeenProcess(id=ProcessId(pid, ticks * TICK), place=where, visible=visible)


def whose(owners: ProcessOwners, by: OwnerFacts = KNOWN) -> dict[int, ProcessOwner]:
    """As it is known after some looks have said the same."""
    found = owners.whose(by)
    for later in range(1, cuda_owners.LOOKS + 1):
        found = owners.whose(by._replace(look=by.look + later))
    return {id_.pid: who for id_, who in found.items()}


def told(process: CudaProcess, *all_seen: SeenProcess, by: OwnerFacts = KNOWN) -> ProcessOwner | None:
    owners = ProcessOwners()
    owners.learn([process], all_seen)
    return whose(owners, by).get(process.id.pid)


@pytest.mark.parametrize(
    ("own", "by_proc", "devices"),
    [
        (None, None, [1, 3]),
        (None, "1", [3]),
        (None, "", []),
        (None, GPU(3), [3]),
        ("1,0", None, [3, 1]),
        # what a program has set itself wins
        ("1", "0", [3]),
        ("", "0", []),
    ],
)
def test_a_process_of_a_pod(own: str | None, by_proc: str | None, devices: list[int]) -> None:
    found = told(process(visible=own), seen(7, place(A), by_proc))
    assert found == ProcessOwner(A, tuple(KEYS[number] for number in devices))


def test_a_process_with_a_closed_environment_means_the_only_device() -> None:
    hidden = replace(seen(7, place(A)), is_hidden=True)
    assert told(process(), hidden) == ProcessOwner(A, ())
    assert told(process(), replace(seen(7, place(B)), is_hidden=True)) == ProcessOwner(B, (KEYS[3],))
    # what the program has set itself is known all the same
    assert told(process(visible="1"), hidden) == ProcessOwner(A, (KEYS[3],))


@pytest.mark.parametrize(
    ("files", "text", "numbers"),
    [
        (0, None, [1, 3]),  # nobody could tell
        (1, None, [1, 3]),
        (2, "1", [3]),
        (4, None, []),
        (4, "1", []),
        (4, GPU(3), [3]),
        (4, GPU(0), []),  # one that it was not given
    ],
)
def test_a_privileged_container_sees_more_gpus_than_it_was_given(
    files: int, text: str | None, numbers: list[int]
) -> None:
    found = told(process(), replace(seen(7, place(A), text), gpu_files=files))
    assert found == ProcessOwner(A, tuple(KEYS[number] for number in numbers))


def test_of_the_one_device_of_a_privileged_container_only_a_uuid_tells() -> None:
    of_b = replace(seen(7, place(B)), gpu_files=4)
    assert told(process(), of_b) == told(process(), replace(of_b, is_hidden=True)) == ProcessOwner(B, ())
    assert told(process(visible=GPU(3)), replace(of_b, is_hidden=True)) == ProcessOwner(B, (KEYS[3],))
    # processes in no container number all of them in any case
    assert told(process(), replace(seen(7, None), gpu_files=9)) == ProcessOwner(None, tuple(KEYS))
    # one that ended unseen is like the others of its cgroup
    owners = ProcessOwners()
    owners.learn([process(7), process(8, ended=True)], [of_b])
    assert whose(owners)[8] == ProcessOwner(B, ())


def test_the_number_of_a_device_means_the_one_at_its_place() -> None:
    who = ProcessOwner(A, (KEYS[3], KEYS[1]))
    keys = [who.key(CudaDevice(ProcessId(7, 1), ordinal)) for ordinal in (0, 1, 2, -1, 2**31)]
    assert keys == [(A, KEYS[3]), (A, KEYS[1]), *[(A, UNKNOWN_DEVICE)] * 3]


def test_who_is_in_no_pod() -> None:
    assert told(process(), seen(7, None)) == ProcessOwner(None, tuple(KEYS))
    assert told(process(), seen(7, None, "2")) == ProcessOwner(None, (KEYS[2],))
    assert told(process(), seen(7, DOCKER)) == ProcessOwner(None, ())


def test_nobody_is_guessed() -> None:
    assert told(process()) is None, "nobody has looked at it"
    assert told(process(), seen(7, place(A)), by=facts(B)) is None, "no table has its container"
    assert told(process(), seen(8, place(A))) is None, "another pid"
    assert told(process(), seen(7, place(A), ticks=4), seen(7, place(A), ticks=6)) is None, "another start"
    assert told(process(), seen(7, ProcessPlace(container_id="", pod_uid=UIDS[A]))) is None, (
        "in none of the pod's containers"
    )


def test_a_container_without_a_device_of_the_kubelets() -> None:
    assert told(process(), seen(7, place(A)), by=facts(A, held={})) == ProcessOwner(A, ())


def test_that_a_container_has_none_counts_only_after_looks_that_came_later() -> None:
    owners, empty = ProcessOwners(), facts(A, held={})
    owners.learn([process()], [seen(7, place(A))])
    assert not owners.whose(empty._replace(look=8))
    assert not owners.whose(empty._replace(look=9)), "the kubelet may have been asked before"
    assert {*owners.whose(KNOWN._replace(look=9)).values()} == {ProcessOwner(A, (KEYS[1], KEYS[3]))}
    late = ProcessOwners()
    late.learn([process()], [seen(7, place(A))])
    assert [len(late.whose(empty._replace(look=look))) for look in (8, 8, 9, 10)] == [0, 0, 0, 1]


def test_where_the_order_of_devices_is_not_known_only_their_uuids_mean_one() -> None:
    blind = KNOWN._replace(inventory=Inventory())
    assert told(process(), seen(7, place(A)), by=blind) == ProcessOwner(A, ())
    assert told(process(), seen(7, place(A), "0"), by=blind) == ProcessOwner(A, ())
    assert told(process(), seen(7, place(A), "GPU-00000003"), by=blind) == ProcessOwner(A, (KEYS[3],))
    assert told(process(), seen(7, place(B)), by=blind) == ProcessOwner(B, (KEYS[3],)), "it has only one"


def test_an_owner_never_changes_and_devices_only_for_others() -> None:
    owners, one = ProcessOwners(), process()
    owners.learn([one], [seen(7, place(A))])
    assert whose(owners, facts(A, held={}))[7] == ProcessOwner(A, ())
    assert whose(owners)[7] == ProcessOwner(A, (KEYS[1], KEYS[3])), "the kubelet's word comes later"
    # /proc has nothing more of it, its pod has gone, and another one says that the container is its own
    owners.learn([process(ended=True)], [])
    assert whose(owners, facts(held={}))[7] == ProcessOwner(A, (KEYS[1], KEYS[3]))
    renamed = {DeviceKey(uuid="nvidia1"): KNOWN.owners.holders[KEYS[1]]}
    gpus = (InventoryGpu(uuid=GPU(1), index="1", device="nvidia1"),)
    by = OwnerFacts(KNOWN.tables, Owners(holders=renamed), Inventory(gpus=gpus))
    assert whose(owners, by)[7].devices == (DeviceKey(uuid="nvidia1"),), "by the name that rows have now"


def test_a_process_that_ended_unseen_is_where_all_others_of_its_cgroup_are() -> None:
    owners = ProcessOwners()
    running, brief, waiting = process(7), process(8, ended=True), process(9)
    owners.learn([running, brief, waiting], [seen(7, place(A), "1")])
    # /proc can still say of the one that runs what it sees
    assert whose(owners) == {7: ProcessOwner(A, (KEYS[3],)), 8: ProcessOwner(A, (KEYS[3],))}
    elsewhere = process(10, cgroup=101, ended=True)
    owners.learn([elsewhere], [])
    assert 10 not in whose(owners)


def test_a_process_that_ended_unseen_waits_for_others_of_its_cgroup() -> None:
    """As a script does that calls one short program after another: /proc is read once a second."""
    owners = ProcessOwners()
    first, gone = process(8, ended=True), process(9, ended=True)
    owners.learn([first, gone], [])
    assert whose(owners) == {}
    owners.keep({first.id})  # nobody counts the other one any more
    owners.learn([process(10)], [seen(10, place(A), "1")])
    assert whose(owners) == {8: ProcessOwner(A, (KEYS[3],)), 10: ProcessOwner(A, (KEYS[3],))}


@pytest.mark.parametrize("cgroup", [0, 1])
def test_a_cgroup_that_all_are_in_says_nothing(cgroup: int) -> None:
    owners = ProcessOwners()
    processes = [process(7, cgroup), process(8, cgroup, ended=True)]
    owners.learn(processes, [seen(7, place(A))])
    assert whose(owners).keys() == {7}
    assert owners.cgroups == 0


def test_a_cgroup_with_processes_in_several_places_says_nothing_ever() -> None:
    owners = ProcessOwners()
    owners.learn([process(7), process(8)], [seen(7, place(A)), seen(8, place(B))])
    owners.learn([process(7)], [seen(7, place(A))])
    late = process(9, ended=True)
    owners.learn([late], [])
    assert 9 not in whose(owners)


def test_devices_of_a_process_that_ended_unseen_may_be_unknown() -> None:
    owners = ProcessOwners()
    late, said = process(9, ended=True), process(10, visible="0", ended=True)
    owners.learn([process(7), process(8), late, said], [seen(7, place(A), "0"), seen(8, place(A), "1")])
    found = whose(owners)
    assert (found[9], found[10]) == (ProcessOwner(A, ()), ProcessOwner(A, (KEYS[1],)))


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_owners, "MOST_CGROUPS", 3)
    owners = ProcessOwners()
    many = [process(pid, cgroup=100 + pid) for pid in range(10)]
    owners.learn(many, [seen(pid, place(A)) for pid in range(10)])
    assert owners.cgroups == 3
    whose(owners)
    owners.keep({many[4].id})
    assert whose(owners) == {4: ProcessOwner(A, (KEYS[1], KEYS[3]))}
    owners.learn([process(20, cgroup=109, ended=True), process(21, cgroup=100, ended=True)], [])
    assert whose(owners).keys() == {4, 20}


PLACES = st.sampled_from((None, place(A), place(B), DOCKER))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(2, 3), PLACES, st.booleans()), max_size=20))
def test_an_owner_once_found_stays(steps: list[tuple[int, int, ProcessPlace | None, bool]]) -> None:
    """Whatever /proc and cgroups say later, and whether or not tables know the container at the time."""
    owners, before = ProcessOwners(), dict[int, ProcessOwner]()
    for pid, cgroup, where, is_known in steps:
        one = process(pid, cgroup)
        owners.learn([one], [seen(pid, where)])
        now = whose(owners, KNOWN if is_known else facts(held={}))
        assert {pid: who.owner for pid, who in before.items()}.items() <= {p: w.owner for p, w in now.items()}.items()
        before = now
