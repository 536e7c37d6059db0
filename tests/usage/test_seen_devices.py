"""On which devices each container's processes were seen, for as long as its pod lives."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from exporter.model.devices import DeviceKey
from exporter.model.driver import GpuProcess
from exporter.model.grants import Given
from exporter.model.measured import HostProcesses, NamedContainer, Process, ProcessPlace
from exporter.model.pods import Owner
from exporter.usage.process_owners import Containers
from exporter.usage.seen_devices import NOTHING_SEEN, SeenDevices
from tests.usage.test_owner_use import CUT, ONE, PARENT, READ_AT, WHOLE, A, B, id_of, on, reading, seen, uid_of

OTHER = DeviceKey(uuid="GPU-other")
IDS = {A: frozenset({"token-1"}), B: frozenset({"token-2"})}


def table(*containers: tuple[Owner, int]) -> Containers:
    """Containers of pods with these numbers."""
    return Containers(
        by_id={
            id_of(number): (NamedContainer(container_id=id_of(number), owner=owner, pod_uid=uid_of(number)),)
            for owner, number in containers
        }
    )


BOTH = table((A, 1), (B, 2))


class Node:
    """What NVML lists of each pod, from look to look."""

    def __init__(self) -> None:
        self.seen = SeenDevices()

    def look(
        self,
        *processes: tuple[int, DeviceKey],
        known: Containers = BOTH,
        ids: dict[Owner, frozenset[str]] = IDS,
        started_at: float = 1.0,
        uids: Mapping[int, str] = MappingProxyType({}),
    ) -> dict[Owner, set[DeviceKey]]:
        """The devices by container, after a look at the processes of pods with these numbers."""
        by_pid = {
            pid: Process(
                pid=pid,
                started_at=started_at,
                place=ProcessPlace(container_id=id_of(pod), pod_uid=uids.get(pod, uid_of(pod))),
            )
            for pid, (pod, _) in enumerate(processes, start=100)
        }
        listed: list[GpuProcess] = [on(device, pid) for pid, (_, device) in enumerate(processes, start=100)]
        host = HostProcesses(by_pid=by_pid, asked_for=frozenset(by_pid), read_at=READ_AT)
        return shown(self.seen.look(ids, reading(*listed), host, [known]))


def shown(given: Mapping[Owner, Given]) -> dict[Owner, set[DeviceKey]]:
    assert all(one.source == "NVML" and not one.is_whole for one in given.values())
    return {
        owner: {DeviceKey(uuid=ref.uuid, instance=ref.instance) for ref in one.refs} for owner, one in given.items()
    }


def test_a_process_that_ends_takes_nothing_away() -> None:
    node = Node()
    assert node.look((1, WHOLE)) == {A: {WHOLE}}
    given = node.seen.look(IDS)
    assert node.look((2, OTHER)) == {A: {WHOLE}, B: {OTHER}}
    assert node.look() == {A: {WHOLE}, B: {OTHER}}
    assert node.seen.look(IDS) is not given
    assert node.seen.look(IDS) is node.seen.look(IDS)
    assert node.look((1, OTHER)) == {A: {WHOLE, OTHER}, B: {OTHER}}


def test_without_a_reading_what_is_remembered_counts() -> None:
    node = Node()
    node.look((1, WHOLE))
    assert shown(node.seen.look(IDS)) == {A: {WHOLE}}
    assert shown(node.seen.look(IDS, replace(reading(), processes=None))) == {A: {WHOLE}}
    assert node.seen.look({}) is NOTHING_SEEN
    assert len(node.seen) == 0


def test_a_pod_that_is_made_anew_begins_with_nothing() -> None:
    node = Node()
    node.look((1, WHOLE))
    # its links come before its processes; the old pod's stay for a while, and so do its processes in NVML
    assert node.look((1, WHOLE), known=table((A, 1), (A, 3))) == {}
    assert node.look(known=table((A, 1), (A, 3))) == {}
    assert node.look((3, OTHER), known=table((A, 1), (A, 3))) == {A: {OTHER}}
    assert node.look((1, WHOLE), (3, OTHER), known=table((A, 1), (A, 3))) == {A: {OTHER}}
    assert node.look(known=table((A, 3))) == {A: {OTHER}}


def test_a_static_pod_whose_uid_another_table_tells_later_is_no_newer_one() -> None:
    node = Node()
    uid = uid_of(1).replace("-", "")
    old = table((A, 3)).by_id
    api, links = (
        Containers(by_id={**old, id_of(1): (NamedContainer(container_id=id_of(1), owner=A, pod_uid=of_pod),)})
        for of_pod in ("", uid)
    )
    assert node.look((1, WHOLE), known=api, uids={1: uid}) == {A: {WHOLE}}
    assert node.look(known=links) == {A: {WHOLE}}


def test_other_ids_are_those_of_another_pod() -> None:
    node = Node()
    node.look((1, WHOLE))
    anew = {**IDS, A: frozenset({"token-7"})}
    assert node.look((1, WHOLE), ids=anew) == {}, "its processes are still listed"
    assert node.look((3, OTHER), ids=anew, known=table((A, 1), (A, 3))) == {A: {OTHER}}
    assert shown(node.seen.look(anew)) == {A: {OTHER}}, "these are its ids now"
    once_more = {**IDS, A: frozenset({"token-8"})}
    assert node.look((3, OTHER), ids=once_more, known=table((A, 1), (A, 3))) == {}


def test_of_two_pods_of_one_name_that_both_run_nothing_is_told() -> None:
    both = table((A, 1), (A, 3))
    node = Node()
    assert node.look((1, WHOLE), (3, OTHER), known=both) == {}
    assert node.look((1, WHOLE), known=both) == {A: {WHOLE}}
    assert node.look(known=both) == {A: {WHOLE}}, "the other is not newer"
    assert node.look((1, WHOLE), (3, OTHER), known=both) == {}


def test_a_process_without_a_container_shows_no_device() -> None:
    assert SeenDevices().look(IDS, reading(on(WHOLE, 40)), seen(), [BOTH]) is NOTHING_SEEN


def test_a_pod_that_has_only_one_container_is_told_by_its_uid() -> None:
    node = Node()
    assert node.look((1, WHOLE), known=Containers(alone={uid_of(1): A})) == {A: {WHOLE}}
    assert node.look((1, WHOLE), known=Containers(alone={uid_of(1): A, uid_of(3): A})) == {}


def test_other_ids_end_a_pod_whose_links_came_and_went() -> None:
    node = Node()
    node.look((1, WHOLE))
    node.look(known=table((B, 2)))
    anew = {**IDS, A: frozenset({"token-7"})}
    assert node.look((1, WHOLE), ids=anew) == {}


def test_a_new_pod_that_is_seen_before_its_ids_keeps_what_was_seen() -> None:
    node = Node()
    node.look((1, WHOLE))
    both = table((A, 1), (A, 3))
    assert node.look((3, OTHER), known=both) == {A: {OTHER}}
    assert node.look((3, OTHER), known=both, ids={**IDS, A: frozenset({"token-7"})}) == {A: {OTHER}}


def test_each_time_that_a_pod_is_made_anew_its_ids_end_the_one_before() -> None:
    node = Node()
    node.look((1, WHOLE))
    both = table((A, 1), (A, 3))
    second, third = ({**IDS, A: frozenset({token})} for token in ("token-7", "token-8"))
    node.look((3, OTHER), known=both)
    assert node.look((3, OTHER), known=both, ids=second) == {A: {OTHER}}
    assert node.look((3, OTHER), known=both, ids=third) == {}


def test_of_two_pods_of_one_name_the_later_process_is_of_the_newer() -> None:
    node = Node()
    both = table((A, 1), (A, 3))
    assert node.look(known=both) == {}
    assert node.look((1, WHOLE), known=both) == {A: {WHOLE}}
    assert node.look((3, OTHER), known=both) == {A: {OTHER}}


def test_a_process_that_has_ended_before_proc_was_read_is_nobodys() -> None:
    host = HostProcesses(by_pid={}, asked_for=frozenset({100}), read_at=READ_AT)
    assert shown(SeenDevices().look(IDS, reading(on(WHOLE, 100)), host, [BOTH])) == {}


def test_a_container_that_starts_again_keeps_its_devices() -> None:
    """Its id is another one, and its pod the same."""
    node = Node()
    node.look((1, WHOLE))
    again = NamedContainer(container_id=id_of(9), owner=A, pod_uid=uid_of(1))
    assert node.look(known=Containers(by_id={id_of(9): (again,)})) == {A: {WHOLE}}


def test_two_pods_of_one_name_with_processes_are_nobodys() -> None:
    node = Node()
    assert node.look((1, WHOLE), (3, OTHER), known=table((A, 1), (A, 3))) == {}


def test_what_is_not_certain_does_not_count() -> None:
    node = Node()
    assert node.look((1, WHOLE), started_at=READ_AT + 0.01) == {}, "it has got the pid of an earlier process"
    assert node.look((1, PARENT)) == {}, "on which of its instances?"
    assert node.look((4, WHOLE)) == {}, "nobody knows the container"
    assert node.look((1, ONE), (1, PARENT)) == {A: {ONE}}
    assert ONE.uuid == CUT


def test_a_process_may_start_up_to_the_moment_when_the_driver_is_asked() -> None:
    assert Node().look((1, WHOLE), started_at=READ_AT) == {A: {WHOLE}}


def test_only_containers_with_tokens_are_remembered() -> None:
    node = Node()
    assert node.look((1, WHOLE), (2, WHOLE), ids={B: IDS[B]}) == {B: {WHOLE}}
    assert len(node.seen) == 1
