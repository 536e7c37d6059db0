"""Ends of containers for lack of GPU memory: what is suspected, and what never is, by tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.entries import Entry
from exporter.accounts.ledger import Rules
from exporter.accounts.memory_looks import Ends, ends_of
from exporter.accounts.out_of_memory import EndOfHolder, SeenMemory, judge, largest
from exporter.accounts.state_bytes import restore
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.cuda import CudaCounts, CudaUse, CudaUses
from exporter.model.devices import DeviceKey
from exporter.model.pods import ContainerEnd, Owner, PodInfo, PodOfName
from tests.support.ledgers import dump
from tests.support.looks import GPU, SECOND, Looks, energy, owner, row, whole

ALL_MIB = 81_559.0
DEVICE = DeviceKey(uuid=GPU(0))
LIKELY, SUSPECTED, POSSIBLE = Suspicion.LIKELY, Suspicion.SUSPECTED, Suspicion.POSSIBLE
ENDED = 1000.0
ERROR = ContainerEnd(id="containerd://1", exit_code=1, reason="Error", at_seconds=ENDED)
# a look: how long before the end (seconds), how much of the memory was in use (percent), and what others used of it
Seen = tuple[float, float, Mapping[str, float]]
FILLED: Sequence[Seen] = ((24, 20, {}), (14, 60, {}), (4, 99, {}))
STEADY: Sequence[Seen] = ((24, 99, {}), (14, 99, {}), (4, 99, {}))


@dataclass(frozen=True)
class Case:
    """An end of the pod `a`, and what speaks for and against it."""

    seen: Sequence[Seen] = FILLED
    end: ContainerEnd = ERROR
    xids: frozenset[int] = frozenset()
    failed: int = 0
    holds: str = "a"
    users: Mapping[str, float] = field(default_factory=dict)


def of_end(**fields: object) -> ContainerEnd:
    return replace(ERROR, **fields)  # type: ignore[arg-type]  # fields by their names


def judged(case: Case) -> SuspectedOutOfMemory | None:
    ended_ns = round(ENDED * SECOND)
    looks: list[SeenMemory] = []
    for before, percent, users in case.seen:
        at_ns = ended_ns - round(before * SECOND)
        by_size = sorted(((owner(pod), mib) for pod, mib in users.items()), key=lambda user: -user[1])
        holders = [Entry(owner(pod), "", DEVICE) for pod in case.holds]
        looks.append(SeenMemory(at_ns, at_ns, ALL_MIB * percent / 100, ALL_MIB, holders, by_size))
    return judge(
        EndOfHolder(
            owner=owner("a"),
            device=DEVICE,
            end=case.end,
            ended_at_ns=ended_ns,
            looks=looks,
            xids=case.xids,
            failed_allocations=case.failed,
        )
    )


NEIGHBOUR = {"b": 0.875 * ALL_MIB, "a": 0.1 * ALL_MIB}
CASES: Mapping[str, tuple[Case, Suspicion | None]] = {
    "it filled the memory, and ended": (Case(), SUSPECTED),
    "the program aborted, as C++ does": (Case(end=of_end(exit_code=134)), SUSPECTED),
    "the program used a null pointer": (Case(end=of_end(exit_code=139)), SUSPECTED),
    "any other exit code": (Case(end=of_end(exit_code=3)), SUSPECTED),
    "an allocator kept it full for long": (Case(seen=STEADY), POSSIBLE),
    "one look only, at a full GPU": (Case(seen=STEADY[:1]), POSSIBLE),
    "an error of the program beside": (Case(xids=frozenset({31})), POSSIBLE),
    "another error of the program beside": (Case(seen=STEADY, xids=frozenset({13})), POSSIBLE),
    "full half a minute before, then freed": (Case(seen=((50, 20, {}), (35, 97, {}), (5, 3, {}))), SUSPECTED),
    "the look after the end shows the page of before": (Case(seen=((9, 30, {}), (-0.9, 98, {}))), SUSPECTED),
    "the probe counted failures, at 70 %": (Case(seen=((4, 70, {}),), failed=2), LIKELY),
    "the probe counted failures in a full GPU": (Case(failed=1), LIKELY),
    "a neighbour had nearly all of it": (Case(seen=((4, 89, {"b": 0.85 * ALL_MIB}),), holds="ab"), POSSIBLE),
    "a neighbour filled it": (Case(seen=((14, 20, {}), (4, 97.5, NEIGHBOUR)), holds="ab"), SUSPECTED),
    "95 % is full": (Case(seen=((14, 20, {}), (4, 95, {}))), SUSPECTED),
    "of a full GPU 9 % were filled meanwhile": (Case(seen=((14, 90, {}), (4, 99, {}))), POSSIBLE),
    "of a full GPU 11 % were filled meanwhile": (Case(seen=((14, 88, {}), (4, 99, {}))), SUSPECTED),
    "a neighbour had 80 % of it": (Case(seen=((4, 89, {"b": 0.8 * ALL_MIB}),), holds="ab"), POSSIBLE),
    "two neighbours had 80 %": (Case(seen=((4, 89, dict.fromkeys("bc", 0.4 * ALL_MIB)),), holds="abc"), POSSIBLE),
    "it had most of it itself": (Case(seen=((4, 89, {"a": 0.85 * ALL_MIB}),)), None),
    "full just a minute before": (Case(seen=((60, 99, {}),)), POSSIBLE),
    "full a second after the second of the end": (Case(seen=((-1, 99, {}),)), POSSIBLE),
    "full later than that": (Case(seen=((-1.1, 99, {}),)), None),
    "its shell could not run the command": (Case(end=of_end(exit_code=126)), None),
    "no valid exit code": (Case(end=of_end(exit_code=128)), None),
    "its terminal went away": (Case(end=of_end(exit_code=129)), None),
    "its runtime could not run it": (Case(end=of_end(reason="ContainerCannotRun")), None),
    "its runtime could not start it": (Case(end=of_end(reason="StartError")), None),
    "its job took too long": (Case(end=of_end(reason="DeadlineExceeded")), None),
    "the runtime has lost it": (Case(end=of_end(reason="ContainerStatusUnknown")), None),
    "exit code 0": (Case(end=of_end(exit_code=0, reason="Completed")), None),
    "exit code 0 in spite of failures": (Case(end=of_end(exit_code=0, reason="Completed"), failed=9), None),
    "the kernel killed it for its memory limit": (Case(end=of_end(exit_code=137, reason="OOMKilled")), None),
    "the kernel killed a child, and it said 1": (Case(end=of_end(exit_code=1, reason="OOMKilled")), None),
    "killed, as by a liveness probe": (Case(end=of_end(exit_code=137)), None),
    "terminated, as by a launcher": (Case(end=of_end(exit_code=143)), None),
    "interrupted": (Case(end=of_end(exit_code=130)), None),
    "its pod was deleted, evicted or preempted": (Case(end=of_end(is_ordered=True)), None),
    "it did not start": (Case(end=of_end(exit_code=128, reason="StartError")), None),
    "no such command": (Case(end=of_end(exit_code=127)), None),
    "nobody saw it end": (Case(end=of_end(exit_code=255, reason="ContainerStatusUnknown")), None),
    "the memory was never near full": (Case(seen=((24, 20, {}), (14, 60, {}), (4, 94, {}))), None),
    "never full, and an error of the program": (Case(seen=((4, 70, {}),), xids=frozenset({31})), None),
    "the GPU failed": (Case(xids=frozenset({79})), None),
    "the GPU's memory failed": (Case(xids=frozenset({48, 31}), failed=1), None),
    "full more than a minute ago": (Case(seen=((90, 99, {}), (61, 99, {}), (5, 40, {}))), None),
    "full only after the end": (Case(seen=((5, 40, {}), (-5, 99, {}))), None),
    "it did not hold the GPU while that was full": (Case(holds="b"), None),
    "nobody looked": (Case(seen=()), None),
    "a neighbour had half of it": (Case(seen=((4, 89, {"b": 0.5 * ALL_MIB}),), holds="ab"), None),
}


# issue 26, part 4
@pytest.mark.parametrize(("case", "suspicion"), CASES.values(), ids=CASES.keys())
def test_what_is_suspected(case: Case, suspicion: Suspicion | None) -> None:
    suspected = judged(case)
    assert (suspected.suspicion if suspected else None) is suspicion


def test_the_neighbour_is_named_and_the_look_is_told() -> None:
    suspected = judged(Case(seen=((14, 20, {}), (4, 97.5, NEIGHBOUR)), holds="ab", xids=frozenset({31, 13})))
    assert suspected is not None
    assert (suspected.neighbour, suspected.neighbour_mib) == (owner("b"), NEIGHBOUR["b"])
    assert suspected.own_mib == NEIGHBOUR["a"]
    assert suspected.seen_before_ns == 4 * SECOND
    assert suspected.xids == (13, 31)


def test_a_suspicion_has_the_last_of_the_fullest_looks() -> None:
    assert judged(Case(seen=STEADY, failed=2)) == SuspectedOutOfMemory(
        owner=owner("a"),
        device=DEVICE,
        ended_ns=1000 * SECOND,
        exit_code=1,
        suspicion=LIKELY,
        used_mib=ALL_MIB * 99 / 100,
        all_mib=ALL_MIB,
        seen_before_ns=4 * SECOND,
        failed_allocations=2,
    )


def test_memory_that_stood_from_before_the_end_until_after_it_counts() -> None:
    holders = [Entry(owner("a"), "", DEVICE)]
    stood = SeenMemory(900 * SECOND, 1090 * SECOND, ALL_MIB, ALL_MIB, holders)
    suspected = judge(EndOfHolder(owner=owner("a"), device=DEVICE, end=ERROR, ended_at_ns=1000 * SECOND, looks=[stood]))
    assert suspected is not None
    assert suspected.seen_before_ns == 0


def test_of_the_users_of_a_device_the_four_largest_are_kept() -> None:
    users = [(owner(pod), float(mib)) for pod, mib in (("a", 2), ("e", 5), ("b", 9), ("d", 5), ("c", 1))]
    assert [(user.pod, mib) for user, mib in largest(users)] == [("b", 9), ("d", 5), ("e", 5), ("a", 2)]


# an end that something else explains is never said, whatever the memory was
@given(
    st.integers(0, 255),
    st.sampled_from(["Error", "OOMKilled", "Completed", "StartError"]),
    st.booleans(),
    st.lists(st.tuples(st.floats(-5, 100), st.floats(0, 100)), max_size=6),
    st.sets(st.sampled_from([13, 31, 48, 79, 94]), max_size=2),
    st.integers(0, 2),
)
def test_what_is_never_said(
    code: int, reason: str, is_ordered: bool, seen: list[tuple[float, float]], xids: set[int], failed: int
) -> None:
    end = of_end(exit_code=code, reason=reason, is_ordered=is_ordered)
    looks: list[Seen] = [(before, percent, {}) for before, percent in seen]
    suspected = judged(Case(seen=looks, end=end, xids=frozenset(xids), failed=failed))
    if suspected is None:
        return
    assert code not in (0, 137, 143)
    assert reason not in ("OOMKilled", "StartError")
    assert not is_ordered
    assert not xids & {48, 79, 94}
    in_time = [percent for before, percent in seen if -1 <= before <= 60]
    assert failed or max(in_time) >= 94.99
    assert bool(failed) is (suspected.suspicion is LIKELY)


def memory(used: float, gpu: int = 0, instance: str = "", total: float = ALL_MIB) -> str:
    profile = "1g.10gb" if instance else ""
    return "".join(
        row(f"DCGM_FI_DEV_FB_{name}", f"{value}", gpu, instance, profile)
        for name, value in (("USED", used), ("TOTAL", total), ("FREE", total - used))
    )


def ended(pod: str, at_seconds: float, number: int = 1, **fields: object) -> Ends:
    end = of_end(id=f"containerd://{pod}-{number}", at_seconds=at_seconds, **fields)
    return {owner(pod): [end]}


def counted(looks: Looks) -> dict[tuple[str, str, str], dict[str, int]]:
    """What was counted, by pod, GPU and instance."""
    return {
        (account.owner.pod, account.device.uuid, account.device.instance): dict(account.by_label["out_of_memory"])
        for account in looks.ledger.accounts.rows
        if account.owner and account.by_label.get("out_of_memory")
    }


def filled(*, pods: str = "a", looks: Looks | None = None, **more: object) -> Looks:
    """Looks at 10, 20 and 30 seconds, at which one or several pods fill GPU 0."""
    looks = looks or Looks()
    held = {pod: whole(0) for pod in pods}
    for seconds, part in ((10, 0.1), (20, 0.5), (30, 0.99)):
        looks.at(seconds, energy(f"{seconds}") + memory(part * ALL_MIB), held, {}, **more)
    return looks


AFTER = energy("40") + memory(0)


def test_an_end_is_counted_once_however_often_it_is_listed() -> None:
    looks = filled()
    ends = ended("a", 34)
    for seconds in (40, 50, 60):
        looks.at(seconds, AFTER, {"a": whole(0)}, ends)
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}
    (suspected,) = looks.ledger.accounts.suspicions
    assert suspected.seen_before_ns == 4 * SECOND
    assert 'pod_gpu_suspected_out_of_memory_total{suspicion="suspected",namespace="ns-a"' in looks.text()


def test_each_end_of_a_crash_loop_is_counted() -> None:
    looks = filled()
    looks.at(40, AFTER, {"a": whole(0)}, ended("a", 34))
    looks.at(50, energy("50") + memory(0.99 * ALL_MIB), {"a": whole(0)}, ended("a", 34))
    looks.at(60, energy("60") + memory(0), {"a": whole(0)}, ended("a", 55, number=2))
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 2}}
    assert [suspected.ended_at_seconds for suspected in looks.ledger.accounts.suspicions] == [55, 34]


def test_a_pod_that_is_gone_is_counted_before_its_row_goes() -> None:
    looks = filled()
    looks.at(40, AFTER, {}, ended("a", 34))
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}


def test_without_pods_nothing_is_counted() -> None:
    looks = Looks()
    for seconds in (10, 20, 30):
        looks.at(seconds, energy(f"{seconds}") + memory(seconds / 30 * ALL_MIB), {"a": whole(0)})
    looks.at(40, AFTER, {}, None)
    assert counted(looks) == {}


def test_the_container_that_ended_is_counted_and_not_its_neighbour() -> None:
    uses = {"a": 0.1 * ALL_MIB, "b": 0.88 * ALL_MIB}
    looks = filled(pods="ab", uses=uses)
    looks.at(40, energy("40") + memory(0.88 * ALL_MIB), {"a": whole(0), "b": whole(0)}, ended("a", 34), uses=uses)
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}
    (suspected,) = looks.ledger.accounts.suspicions
    assert (suspected.neighbour, suspected.neighbour_mib) == (owner("b"), 71_771.9)


def test_ends_without_an_id_of_the_runtime_are_counted_apart() -> None:
    """As with a pod's status that the runtime has lost."""
    looks = filled(pods="ab")
    ends = {owner(pod): [of_end(id="", at_seconds=34)] for pod in "ab"}
    for seconds in (40, 50):
        looks.at(seconds, AFTER, {"a": whole(0), "b": whole(0)}, ends)
    assert counted(looks).keys() == {("a", GPU(0), ""), ("b", GPU(0), "")}


def test_a_container_with_several_gpus_is_counted_on_the_fullest() -> None:
    looks = Looks()
    for seconds, part in ((10, 0.1), (30, 0.96)):
        page = energy(f"{seconds}") + energy(f"{seconds}", gpu=1) + memory(part * ALL_MIB)
        looks.at(seconds, page + memory((part + 0.03) * ALL_MIB, gpu=1), {"a": whole(0, 1)}, {})
    looks.at(40, AFTER + energy("40", gpu=1) + memory(0, gpu=1), {"a": whole(0, 1)}, ended("a", 34))
    assert counted(looks) == {("a", GPU(1), ""): {"suspected": 1}}
    (suspected,) = looks.ledger.accounts.suspicions
    assert suspected.more_devices == 1


def test_of_a_mig_gpu_the_instances_own_memory_counts() -> None:
    mig = {f"MIG-{number}": (0, str(number), "1g.10gb") for number in (7, 8)}
    looks = Looks(mig=mig)
    held = {"a": [("nvidia.com/mig-1g.10gb", "MIG-7")], "b": [("nvidia.com/mig-1g.10gb", "MIG-8")]}

    def page(seconds: int, first: float) -> str:
        energies = "".join(energy(f"{seconds}", 0, instance) for instance in ("7", "8"))
        return energies + memory(first * 9984, 0, "7", 9984) + memory(0.3 * 9984, 0, "8", 9984)

    for seconds, part in ((10, 0.1), (30, 0.98)):
        looks.at(seconds, page(seconds, part), held, {})
    looks.at(40, page(40, 0), held, {**ended("a", 34), **ended("b", 34)})
    assert counted(looks) == {("a", GPU(0), "7"): {"suspected": 1}}


def test_counts_and_looks_outlive_a_restart() -> None:
    """The container ends while no exporter runs."""
    looks = filled()
    moment = 32 * SECOND
    looks.ledger = restore(dump(looks.ledger, moment), moment, moment)
    looks.at(40, AFTER, {"a": whole(0)}, ended("a", 34))
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}
    moment = 41 * SECOND
    before = looks.ledger.accounts.suspicions
    looks.ledger = restore(dump(looks.ledger, moment), moment, moment)
    assert looks.ledger.accounts.suspicions == before
    looks.at(50, AFTER, {"a": whole(0)}, ended("a", 34))
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}


@pytest.mark.parametrize("every", [1, 2, 10, 30])
@pytest.mark.parametrize("later", [2, 15, 50])
def test_however_often_it_looks_it_judges_an_end_that_is_told_later(every: int, later: int) -> None:
    """A neighbour goes on, and its memory wavers at every look."""
    looks = Looks(rules=Rules(interval_ns=every * SECOND))
    held = {"a": whole(0), "b": whole(0)}
    for seconds in range(0, 61, every):
        looks.at(seconds, energy(f"{seconds}") + memory((0.4 + seconds / 105) * ALL_MIB), held, {})
    for seconds in range(61, 61 + later + 2 * every, every):
        page = energy(f"{seconds}") + memory(0.4 * ALL_MIB + seconds % 7)
        looks.at(seconds, page, {"b": whole(0)}, ended("a", 61) if seconds >= 61 + later else {})
    assert counted(looks) == {("a", GPU(0), ""): {"suspected": 1}}


def test_an_end_that_nobody_looked_at_says_nothing() -> None:
    """The exporter starts after it, without a state."""
    looks = Looks()
    for seconds in (40, 50):
        looks.at(seconds, energy(f"{seconds}") + memory(0.99 * ALL_MIB), {"a": whole(0)}, ended("a", 34))
    assert counted(looks) == {}


@pytest.mark.parametrize(("xid", "suspicion"), [("31", {"possible": 1}), ("79", None)])
def test_xids_of_the_page_are_beside(xid: str, suspicion: dict[str, int] | None) -> None:
    looks = Looks()
    for seconds, part in ((10, 0.1), (30, 0.99)):
        page = energy(f"{seconds}") + row("DCGM_FI_DEV_XID_ERRORS", "0") + memory(part * ALL_MIB)
        looks.at(seconds, page, {"a": whole(0)}, {})
    looks.at(40, AFTER + row("DCGM_FI_DEV_XID_ERRORS", xid), {"a": whole(0)}, ended("a", 34))
    assert counted(looks).get(("a", GPU(0), "")) == suspicion


def test_xids_of_the_kernels_log_are_beside() -> None:
    looks = filled()
    looks.ledger.note_kernel_log({(DEVICE, None, 79): 1}, 5, 35 * SECOND)
    looks.at(40, AFTER, {"a": whole(0)}, ended("a", 34))
    assert counted(looks) == {}


def probe(failed: int, errors: int, of: Owner | None, uuid: str = "") -> CudaUses:
    counts = CudaCounts(failed_allocations=failed, errors={2: errors})
    return CudaUses(uses={(of, DeviceKey(uuid=uuid)): CudaUse(counts=counts)})


@pytest.mark.parametrize(
    ("before", "after", "uuid", "suspicion"),
    [
        ((0, 0), (1, 1), "", LIKELY),
        ((5, 5), (6, 7), GPU(0), LIKELY),
        ((5, 5), (5, 5), GPU(0), None),  # long ago
        ((5, 5), (6, 5), GPU(0), None),  # of another error
        ((5, 5), (6, 6), GPU(3), None),  # on another GPU
    ],
)
def test_failures_that_the_probe_counts(
    before: tuple[int, int], after: tuple[int, int], uuid: str, suspicion: Suspicion | None
) -> None:
    looks = Looks()
    page = energy("1") + memory(0.7 * ALL_MIB)
    looks.at(10, page, {"a": whole(0)}, {}, cuda=probe(*before, owner("a"), uuid))
    looks.at(20, page, {"a": whole(0)}, {}, cuda=probe(*after, owner("a"), uuid))
    looks.at(30, page, {"a": whole(0)}, ended("a", 24), cuda=probe(*after, owner("a"), uuid))
    assert counted(looks).get(("a", GPU(0), "")) == ({suspicion.value: 1} if suspicion else None)


def test_the_ends_of_all_pods_of_a_name() -> None:
    def of_name(uid: str, end: ContainerEnd) -> PodOfName:
        pod = PodInfo(namespace="ns-a", name="a", uid=uid, labels={}, ends={"main": end})
        return PodOfName(pod=pod, since=0.0, until=1.0, is_first=True)

    second = of_end(id="containerd://2")
    ends = ends_of({("ns-a", "a"): (of_name("1", ERROR), of_name("2", second))})
    assert ends == {Owner(namespace="ns-a", pod="a", container="main"): [ERROR, second]}
