"""Whose an error of a GPU is: by the look before it and the one after it."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import pytest

from exporter.dcgm.xids import XIDS
from exporter.model.devices import Assignment, DeviceKey, Holder, Inventory, InventoryGpu, Match, Owners
from exporter.model.driver import GpuProcess
from exporter.model.kernel import DeviceEvent, EventKind, KernelEvent
from exporter.model.measured import Measured
from exporter.model.pages import Subject
from exporter.model.pods import Owner, PodInfo, PodName
from exporter.ownership.kernel_events import KernelEvents
from exporter.ownership.owners import Unmatched
from tests.support.xids import INFORMING

# as users know them
MOST_WAIT_SECONDS = 30.0

ADDRESS, UUID = "0000:65:00.0", "GPU-00000001-1111-2222-3333-444455556666"
INVENTORY = Inventory(gpus=(InventoryGpu(uuid=UUID, index="3", address=ADDRESS), InventoryGpu(uuid="GPU-2")))
A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")


def held(*owners: Owner, instance: str = "", uuid: str = UUID) -> Owners:
    holders = tuple(Holder(owner=owner, resource="nvidia.com/gpu", shared=len(owners) > 1) for owner in owners)
    return Owners(holders={DeviceKey(uuid=uuid, instance=instance): holders} if owners else {})


NOBODYS = held()
NUMBERS = itertools.count()


def xid(code: int | None = 79, kind: EventKind = "xid", **more: object) -> KernelEvent:
    number = next(NUMBERS)
    return KernelEvent(
        kind=kind,
        sequence=number,
        booted_us=number * 2_000_000,
        code=code,
        **{"address": ADDRESS, **more},  # type: ignore[arg-type] # what a test says of it
    )


class Story:
    """Looks and events, second by second."""

    def __init__(self) -> None:
        self.events = KernelEvents()

    def look(
        self,
        owners: Owners,
        at: float,
        asked_at: float | None = None,
        pods: Mapping[PodName, PodInfo] = MappingProxyType({}),
    ) -> None:
        asked = at if asked_at is None else asked_at
        self.events.look(owners, INVENTORY, pods=pods, asked_at=None if asked < 0 else asked, now=at)

    def hear(self, event: KernelEvent, at: float, *, is_new: bool = True) -> bool:
        return self.events.hear(event, {}, at_seconds=1_000 + at, heard_at=at, is_new=is_new)

    @property
    def holders(self) -> tuple[Owner, ...] | None:
        (event,) = self.events.newest
        assert (event.uuid, event.index) == (UUID, "3")
        return event.holders


# issue 22, line 4: what the kubelet lists as the line is read decides; the look before, within a second alone
@pytest.mark.parametrize(
    ("before", "age", "after", "delay", "holders"),
    [
        (held(A), 5.0, held(A), 0.0, (A,)),
        (held(A), 5.0, held(A), 9.0, (A,)),
        # the pod is gone with its GPU
        (held(A), 0.9, NOBODYS, 0.1, (A,)),
        (held(A), 1.0, NOBODYS, 9.0, (A,)),
        # it was gone before, and a look saw it last some seconds ago
        (held(A), 1.1, NOBODYS, 0.1, ()),
        (held(A), 9.0, NOBODYS, 0.1, ()),
        (held(A), 9.0, NOBODYS, 9.0, None),
        # b came after a had gone, and before the event: the kubelet was asked at that moment
        (held(A), 5.0, held(B), 0.1, (B,)),
        (held(A), 5.0, held(B), 0.0, (B,)),
        (held(A), 5.0, held(B), 0.5, (B,)),
        (held(A), 5.0, held(B), 0.6, None),
        (held(A), 5.0, held(B), 9.0, None),
        (NOBODYS, 5.0, held(B), 0.1, (B,)),
        # b may have come after it
        (NOBODYS, 5.0, held(B), 9.0, None),
        (NOBODYS, 5.0, NOBODYS, 0.1, ()),
        (held(A, B), 5.0, held(A, B), 0.1, (A, B)),
    ],
)
def test_the_looks_before_and_after_say_whose_it_is(
    before: Owners, age: float, after: Owners, delay: float, holders: tuple[Owner, ...] | None
) -> None:
    story = Story()
    story.look(before, 10 - age)
    assert story.hear(xid(), 10)
    assert story.events.is_waiting
    story.look(after, 10 + delay)
    assert story.holders == holders
    assert not story.events.is_waiting


def pods_of(uid: str) -> Mapping[PodName, PodInfo]:
    return {("ml", "a"): PodInfo(namespace="ml", name="a", uid=uid, labels={}, phase="Running")}


# issue 22, line 4
@pytest.mark.parametrize(
    ("before", "age", "after", "delay", "uid"),
    [
        ("u1", 5.0, "u1", 9.0, "u1"),
        ("u1", 5.0, "u2", 0.1, "u2"),  # made anew under its name, before the line was read
        ("u1", 5.0, "u2", 9.0, ""),  # nobody can say which of both
        ("", 5.0, "u2", 0.1, "u2"),
        ("u1", 0.5, None, 0.1, "u1"),  # gone with its GPU
        ("", 5.0, "", 0.1, ""),  # pods are not read
    ],
)
def test_an_event_has_the_uid_of_the_pod_that_held_the_gpu(
    before: str, age: float, after: str | None, delay: float, uid: str
) -> None:
    story = Story()
    story.look(held(A), 10 - age, pods=pods_of(before) if before else {})
    story.hear(xid(), 10)
    story.look(NOBODYS if after is None else held(A), 10 + delay, pods=pods_of(after) if after else {})
    assert story.holders == (A,)
    assert dict(story.events.newest[0].pod_uids) == ({("ml", "a"): uid} if uid else {})


# issue 30, line 3: the pod that held it then, and not the one that came after
def test_the_one_that_comes_after_is_not_named() -> None:
    story = Story()
    story.look(held(A), 0)
    story.hear(xid(), 5)
    story.look(held(A), 5.1)
    story.look(held(B), 20)
    assert story.holders == (A,)


def test_what_was_heard_late_counts_only_where_nothing_changed() -> None:
    for before, after, holders in ((held(A), held(A), (A,)), (held(A), held(B), None), (held(A), NOBODYS, None)):
        story = Story()
        story.look(before, 0)
        story.hear(xid(), 5, is_new=False)
        story.look(after, 5.1)
        assert story.holders == holders
    silent = Story()
    silent.look(held(A), 0)
    silent.hear(xid(), 5, is_new=False)
    silent.look(NOBODYS, 5 + MOST_WAIT_SECONDS, asked_at=-1)
    assert silent.holders is None, "no word of the kubelet is of that moment"


@pytest.mark.parametrize(("is_new", "delay", "holders"), [(False, 0.1, None), (True, 0.1, (A,)), (True, 0.6, None)])
def test_before_the_first_look_only_an_answer_at_once_counts(
    delay: float, holders: tuple[Owner, ...] | None, *, is_new: bool
) -> None:
    fresh = Story()
    fresh.hear(xid(), 5, is_new=is_new)
    fresh.look(held(A), 5 + delay, pods=pods_of("u1"))
    assert fresh.holders == holders
    assert dict(fresh.events.newest[0].pod_uids) == ({("ml", "a"): "u1"} if holders else {})


def test_an_answer_that_was_asked_for_before_says_nothing() -> None:
    story = Story()
    story.look(held(A), 0)
    story.hear(xid(), 5)
    story.look(held(B), 5.2, asked_at=4.9)
    assert not story.events.newest
    story.look(held(A), 6)
    assert story.holders == (A,)


def test_without_a_kubelet_those_count_who_held_it_before() -> None:
    story = Story()
    story.look(held(A), 0)
    story.hear(xid(), 5)
    story.look(NOBODYS, 6, asked_at=-1)
    assert story.events.is_waiting
    story.look(NOBODYS, 34.9, asked_at=-1)
    assert story.events.is_waiting
    story.look(NOBODYS, 35, asked_at=-1)
    assert story.holders == (A,)


def test_an_instance_s_error_is_its_holder_s() -> None:
    both = Owners(holders={**held(A, instance="5").holders, **held(B, instance="7").holders})
    for instance, holders in (("5", (A,)), ("7", (B,)), ("", (A, B)), ("9", ())):
        story = Story()
        story.look(both, 0)
        story.hear(xid(94, instance=instance), 1)
        story.look(both, 2)
        assert story.holders == holders
    whole = Story()
    whole.look(held(A), 0)
    whole.hear(xid(94, instance="5"), 1)
    whole.look(held(A), 2)
    assert whole.holders == (A,), "who holds the GPU holds its instances"


def test_xids_are_counted_once_to_the_one_who_held_the_gpu() -> None:
    story = Story()
    story.look(held(A), 0)
    for code in (31, 31, 13):
        story.hear(xid(code), 1)
    story.hear(xid(20034, kind="sxid"), 1)
    story.hear(xid(None), 1)
    assert story.events.before_waiting(1_000) < 1_000
    story.look(held(A), 1.1)
    key = DeviceKey(uuid=UUID)
    assert story.events.take() == {(key, A, 31): 2, (key, A, 13): 1}
    assert story.events.take() == {}
    assert story.events.before_waiting(1_000) == 1_000
    for owners in (held(A, B), NOBODYS):
        story.look(owners, 2)
        story.hear(xid(48), 2)
        story.look(owners, 2.1)
        assert story.events.take() == {(key, None, 48): 1}


# issue 22, line 7
@pytest.mark.parametrize("code", XIDS)
def test_an_xid_that_only_informs_is_an_event_and_is_not_counted(code: int) -> None:
    story = Story()
    story.look(held(A), 0)
    story.hear(xid(code), 1)
    story.look(held(A), 1.1)
    assert [event.event.code for event in story.events.newest] == [code]
    assert story.events.take() == ({} if code in INFORMING else {(DeviceKey(uuid=UUID), A, code): 1})
    assert not story.events.standing or code not in INFORMING


def test_lines_of_one_error_are_one_event() -> None:
    story = Story()
    event = xid(13, pid=7)
    lines = [event.booted_us + each for each in (0, 1_000, 999_999, 1_000_000, 1_500_000, 2_000_000)]
    heard = [
        story.hear(KernelEvent(kind="xid", sequence=0, booted_us=moment, address=ADDRESS, code=13, pid=7), 1)
        for moment in lines
    ]
    assert heard == [True, False, False, True, False, True]
    earlier = KernelEvent(kind="xid", sequence=0, booted_us=event.booted_us, address=ADDRESS, code=13, pid=7)
    assert story.hear(earlier, 1), "the log begins anew"
    assert Story().hear(KernelEvent(kind="xid", sequence=0, booted_us=0, address=ADDRESS, code=13), 1), "the first one"
    assert story.hear(xid(13, pid=8), 1), "another process' error"
    assert story.hear(xid(13, pid=7, address="0000:66:00.0"), 1), "another GPU's error"


def test_errors_of_other_devices_are_left_out_and_unknown_gpus_shown() -> None:
    story = Story()
    story.hear(xid(0, kind="pcie", address="0000:01:00.0"), 1)
    story.look(held(A), 2)
    assert not story.events.newest
    story.hear(xid(79, address="0000:01:00.0"), 3)
    story.look(held(A), 4)
    (event,) = story.events.newest
    assert (event.uuid, event.holders) == ("", ())
    assert story.events.take() == {}, "it is nobody's GPU"
    # the driver names a GPU in the log itself
    story.events.hear(xid(48, address="0000:02:00.0"), {"0000:02:00.0": "GPU-2"}, at_seconds=0, heard_at=5, is_new=True)
    story.look(held(B, uuid="GPU-2"), 5.1)
    assert (story.events.newest[0].uuid, story.events.newest[0].holders) == ("GPU-2", (B,))


def test_of_several_holders_it_is_the_process_own() -> None:
    key, story = DeviceKey(uuid=UUID), Story()
    process = GpuProcess(pid=7, device=key, memory_bytes=1, sm_ratio=None, kinds=frozenset({"compute"}))
    before, now = Measured(owned={(key, B): (process,)}), Measured()
    both = held(A, B)
    story.events.look(both, INVENTORY, measured=before, asked_at=0, now=0)
    for pid in (7, 8, None):
        story.hear(xid(31, pid=pid), 1)
    # by now the process is gone
    story.events.look(both, INVENTORY, measured=now, asked_at=1.1, now=1.1)
    assert [event.container for event in story.events.newest] == [None, None, B]
    assert {event.holders for event in story.events.newest} == {(A, B)}
    assert story.events.take() == {(key, B, 31): 1, (key, None, 31): 2}
    # a process that came since the look before
    anew = KernelEvents()
    anew.look(both, INVENTORY, asked_at=0, now=0)
    anew.hear(xid(31, pid=7), {}, at_seconds=1_000, heard_at=1, is_new=True)
    anew.look(both, INVENTORY, measured=before, asked_at=1.1, now=1.1)
    assert [event.container for event in anew.newest] == [B]
    # the process of one that the kubelet does not name, beside the only one that it names
    story.events.look(held(A), INVENTORY, measured=before, asked_at=2, now=2)
    story.hear(xid(31, pid=7), 3)
    story.events.look(held(A), INVENTORY, measured=before, asked_at=3, now=3)
    assert (story.events.newest[0].container, story.events.newest[0].holders) == (B, (A,))
    assert story.events.take() == {(key, B, 31): 1}


def test_after_a_restart_those_count_who_hold_it_still() -> None:
    for now, holders in ((held(A), (A,)), (held(B), None)):
        story = Story()
        story.events.resume({DeviceKey(uuid=UUID): [A]})
        story.hear(xid(), 5, is_new=False)
        story.look(now, 5.1)
        assert story.holders == holders


def subject(uuid: str, address: str, index: str = "3", host: str = "") -> Subject:
    return Subject(uuid=uuid, index=index, address=address, host=host)


def heard_with(*subjects: Subject, inventory: Inventory | None = None, lost_since: bool = False) -> DeviceEvent:
    """An XID at ADDRESS, where pages or the inventory say which GPU that is."""
    events, inventory = KernelEvents(), inventory or Inventory()
    events.look(held(A), inventory, subjects, asked_at=0, now=0)
    events.hear(xid(), {}, at_seconds=1_000, heard_at=5, is_new=True)
    events.look(held(A), inventory, () if lost_since else subjects, asked_at=5.1, now=5.1)
    (event,) = events.newest
    return event


OTHER = subject("GPU-2", "00000000:66:00.0", "4")


# issue 22, line 6
@pytest.mark.parametrize("lost_since", [False, True])
@pytest.mark.parametrize("address", ["00000000:65:00.0", "0000:65:00.0", "0000:65:00.0".upper()])
def test_the_page_says_which_gpu_an_address_is(address: str, *, lost_since: bool) -> None:
    """Where /proc/driver/nvidia is not to be seen; a page lacks a GPU that is lost."""
    event = heard_with(subject(UUID, address), OTHER, lost_since=lost_since)
    assert (event.uuid, event.index, event.holders) == (UUID, "3", (A,))


# issue 22, line 6
@pytest.mark.parametrize(
    ("subjects", "inventory", "uuid"),
    [
        # the driver's own word wins
        ((subject("GPU-2", ADDRESS),), INVENTORY, UUID),
        # NVML knows the GPU and no address of it
        ((subject(UUID, ADDRESS),), Inventory(gpus=(InventoryGpu(uuid=UUID, index="3"),)), UUID),
        # pages of two nodes
        ((subject(UUID, ADDRESS, host="a"), subject("GPU-2", ADDRESS, host="b")), Inventory(), ""),
        ((subject(UUID, ADDRESS, host="a"), subject("GPU-2", "0000:66:00.0", host="b")), Inventory(), ""),
        # what is no address, and a page that names none
        ((subject(UUID, "N/A"), subject(UUID, "::::"), subject(UUID, "")), Inventory(), ""),
        ((subject("GPU-2", ""), subject(UUID, ADDRESS)), Inventory(), UUID),
        # two GPUs at one address, and a page of which some rows name the node
        ((subject(UUID, ADDRESS), subject("GPU-2", ADDRESS)), Inventory(), ""),
        ((subject(UUID, ADDRESS, host="a"), subject("GPU-2", "0000:66:00.0")), Inventory(), UUID),
        # rows of a volume with a label `uuid`, and of an instance by its own UUID
        ((subject("pvc-1", ADDRESS), subject(UUID, ADDRESS)), Inventory(), UUID),
        ((subject("pvc-1", ADDRESS),), Inventory(), ""),
        ((subject("MIG-1", ADDRESS), subject(UUID, ADDRESS)), Inventory(), UUID),
        # an instance's rows, and those of a page without UUIDs
        ((Subject(uuid=UUID, instance="3", address=ADDRESS), Subject(uuid=UUID, address=ADDRESS)), Inventory(), UUID),
        ((Subject(index="3", address=ADDRESS),), Inventory(), ""),
    ],
)
def test_an_address_is_a_gpu_only_where_nothing_contradicts_it(
    subjects: tuple[Subject, ...], inventory: Inventory, uuid: str
) -> None:
    assert heard_with(*subjects, inventory=inventory).uuid == uuid


def test_events_wait_until_there_are_too_many() -> None:
    story = Story()
    story.look(held(A), 0.0)
    for number in range(500):
        assert (story.events.is_waiting, story.events.is_full) == (number > 0, False)
        story.hear(xid(), 5.0)
    assert story.events.is_full


def test_an_event_has_the_number_that_the_page_says_before_the_gpu_is_lost() -> None:
    inventory = Inventory(gpus=(InventoryGpu(uuid=UUID, address=ADDRESS),))
    event = heard_with(subject("GPU-2", "", "4"), subject(UUID, "", ""), subject(UUID, "", "7"), inventory=inventory)
    assert (event.uuid, event.index) == (UUID, "7")
    assert heard_with(subject(UUID, "", "7"), inventory=INVENTORY).index == "3", "the driver's own word wins"


def test_the_page_of_another_node_says_nothing_of_addresses() -> None:
    match = Match(
        assignment=Assignment(owner=A, resource="nvidia.com/gpu", device_id=UUID), ref=None, key=DeviceKey(uuid=UUID)
    )
    for reason, uuid in ((Unmatched.OTHER_NODE, ""), (Unmatched.NO_SAMPLE, UUID)):
        events, owners = KernelEvents(), Owners(matches=(replace(match, reason=reason), replace(match, samples=1)))
        events.look(owners, Inventory(), [subject(UUID, ADDRESS)], asked_at=0, now=0)
        events.hear(xid(), {}, at_seconds=1_000, heard_at=5, is_new=True)
        events.look(owners, Inventory(), [subject(UUID, ADDRESS)], asked_at=5.1, now=5.1)
        assert [event.uuid for event in events.newest] == [uuid]


def test_addresses_of_pages_are_forgotten_once_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.kernel_events.MOST_WAITING", 2)
    for buses, uuid in ((["65", "66"], UUID), (["65", "66", "67"], "")):
        events = KernelEvents()
        pages = [subject(UUID if bus == "65" else f"GPU-{bus}", f"0000:{bus}:00.0") for bus in buses]
        for page in (pages, [OTHER]):
            events.look(NOBODYS, Inventory(), page, asked_at=0, now=0)
        events.hear(xid(), {}, at_seconds=1_000, heard_at=5, is_new=True)
        events.look(NOBODYS, Inventory(), (), asked_at=5, now=5)
        assert [event.uuid for event in events.newest] == [uuid]


def test_few_errors_are_remembered_at_a_time_and_few_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exporter.ownership.kernel_events.MOST_WAITING", 2)
    story = Story()

    def hear(code: int) -> bool:
        return story.hear(KernelEvent(kind="xid", sequence=0, booted_us=5, address=ADDRESS, code=code), 1)

    assert [hear(code) for code in (31, 13, 31, 48, 31)] == [True, True, False, True, True]
    story.look(NOBODYS, 1.1)
    assert story.events.take() == {(DeviceKey(uuid=UUID), None, code): number for code, number in ((31, 1), (13, 1))}


def test_the_newest_events_come_first_and_the_oldest_go() -> None:
    story = Story()
    for at, codes in ((1, range(1, 99)), (2, range(99, 103))):
        for code in codes:
            story.hear(xid(code), at)
        story.look(NOBODYS, at)
    assert [event.event.code for event in story.events.newest] == [*range(102, 2, -1)]


def test_the_log_is_read_again_from_the_first_event_that_waits() -> None:
    story = Story()
    for event in (xid(31), xid(13)):
        story.hear(event, 1)
    assert story.events.before_waiting(1_000_000) == event.sequence - 2
