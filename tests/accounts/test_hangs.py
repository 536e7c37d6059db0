"""Suspected hangs, from pages as dcgm-exporter writes them: when something is said, and when nothing may be."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from exporter.accounts.hang_signs import DeviceSigns, SignsReader
from exporter.accounts.hang_watch import HangWatch
from exporter.accounts.power_levels import MOST_MODELS, PowersOfModels
from exporter.accounts.watched_jobs import Job, JobDevice, WatchedJobs, jobs_of
from exporter.dcgm.fields import FIELDS
from exporter.exposition.families import render
from exporter.model.devices import DeviceKey, Owners
from exporter.model.grants import Grant
from exporter.model.hangs import SuspectedHang
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs.families.accounts import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.output import Look
from tests.support.looks import GPU, SECOND, Held, Looks, row, whole

EVERY = 20  # seconds
_PROF, _DEV = "DCGM_FI_PROF_", "DCGM_FI_DEV_"
Values = dict[str, float]

IDLE: Values = {
    _DEV + "GPU_UTIL": 0,
    _DEV + "MEM_COPY_UTIL": 0,
    _DEV + "POWER_USAGE": 70,
    _PROF + "GR_ENGINE_ACTIVE": 0,
    _PROF + "PIPE_TENSOR_ACTIVE": 0,
    _PROF + "DRAM_ACTIVE": 0,
    _PROF + "PIPE_FP32_ACTIVE": 0,
    _PROF + "PCIE_TX_BYTES": 2e5,
    _PROF + "PCIE_RX_BYTES": 2e5,
    _PROF + "NVLINK_TX_BYTES": 0,
}
TRAINS: Values = IDLE | {
    _DEV + "GPU_UTIL": 99,
    _DEV + "MEM_COPY_UTIL": 40,
    _DEV + "POWER_USAGE": 650,
    _PROF + "GR_ENGINE_ACTIVE": 0.98,
    _PROF + "PIPE_TENSOR_ACTIVE": 0.32,
    _PROF + "DRAM_ACTIVE": 0.24,
    _PROF + "PIPE_FP32_ACTIVE": 0.1,
    _PROF + "NVLINK_TX_BYTES": 5e10,
}
HANGS: Values = IDLE | {_DEV + "GPU_UTIL": 100, _DEV + "POWER_USAGE": 140, _PROF + "GR_ENGINE_ACTIVE": 1}
STARVES: Values = IDLE | {
    _PROF + "GR_ENGINE_ACTIVE": 0.04,
    _DEV + "POWER_USAGE": 120,
    _PROF + "PIPE_TENSOR_ACTIVE": 0.01,
    _PROF + "DRAM_ACTIVE": 0.01,
}
NO_PIPES = (_PROF + "PIPE_FP32_ACTIVE",)


@dataclass
class Node:
    """A node with GPUs 0 and 1, look by look; its power wavers as that of real ones."""

    lacks: Sequence[str] = ()
    mig: Mapping[str, tuple[int, str, str]] = field(default_factory=dict)
    is_frozen: bool = False
    seconds: int = 0
    every: int = EVERY

    def __post_init__(self) -> None:
        self.looks = Looks(mig=self.mig)
        self.watch = HangWatch()

    def page(self, *gpus: Values, instance: str = "", profile: str = "") -> str:
        lines = []
        for gpu, values in enumerate(gpus):
            for family, value in values.items():
                if family in self.lacks:
                    continue
                waver = 0 if self.is_frozen or family != _DEV + "POWER_USAGE" else (self.seconds // self.every) % 5
                lines.append(row(family, f"{value + waver}", gpu, instance, profile))
        return "".join(lines)

    def does(self, held: Held, *gpus: Values, minutes: float, workloads: Mapping[str, str] | None = None) -> "Node":
        """All looks of some minutes, each with these values."""
        for _ in range(round(minutes * 60) // self.every):
            self.look(self.page(*gpus), held, workloads)
        return self

    def look(self, page: str | None, held: Held, workloads: Mapping[str, str] | None = None) -> None:
        self.seconds += self.every
        snapshot = self.looks.snapshot(page, held, workloads=workloads)
        self.looks.note(self.seconds, snapshot)
        at_once(
            self.watch.work_for(snapshot, self.looks.ledger.holders, self.seconds * SECOND, round(self.every * SECOND))
        )

    def learned(self) -> "Node":
        """After some minutes in which the GPUs rested, and some in which they worked."""
        self.does({}, IDLE, IDLE, minutes=5)
        return self.does({"other": whole(0, 1)}, TRAINS, TRAINS, minutes=5)

    @property
    def suspected(self) -> Sequence[SuspectedHang]:
        return self.watch.hangs.suspected


JOB: Held = {"job": whole(0, 1)}


def test_no_more_models_are_remembered_than_a_node_can_have() -> None:
    """A page may give its GPUs another model at each look, for a year."""
    powers = PowersOfModels()
    for number in range(MOST_MODELS + 2):
        for signs in (DeviceSigns(gr_engine=0.0, power=70.0), DeviceSigns(gr_engine=1.0, power=600.0, tensor=0.5)):
            for _ in range(20):
                powers.note(f"model {number}", signs)
    powers.settle()
    assert [*powers.levels] == [f"model {number}" for number in range(MOST_MODELS)]


def test_a_kernel_that_waits_on_all_gpus_for_ten_minutes_is_suspected() -> None:
    node = Node().learned().does(JOB, TRAINS, TRAINS, minutes=3).does(JOB, HANGS, HANGS, minutes=10)
    assert not node.suspected  # the first look began it
    node.does(JOB, HANGS, HANGS, minutes=2)
    (hang,) = node.suspected
    assert (hang.reason, hang.pods) == ("waiting_kernel", (("ns-job", "job"),))
    assert {key.uuid for key in hang.devices} == {GPU(0), GPU(1)}
    assert hang.message == "100% busy for 11 min at 144 W; the model idles at 71 W and works at 655 W"
    assert hang.since_seconds == (5 + 5 + 3) * 60 + EVERY


def test_it_ends_as_soon_as_the_job_gets_on_and_both_are_events() -> None:
    node = Node().learned().does(JOB, HANGS, HANGS, minutes=12)
    assert node.suspected
    node.does(JOB, TRAINS, TRAINS, minutes=0.4)
    assert not node.suspected
    end, begin = node.watch.hangs.events
    assert (end.is_end, begin.is_end) == (True, False)
    assert end.at_seconds == node.seconds
    assert begin.hang.reason == "waiting_kernel"


def test_metrics_say_it_by_pod_and_workload() -> None:
    node = Node()
    deployments = {"job": "trainer"}
    node.does({}, IDLE, IDLE, minutes=5).does({"other": whole(0, 1)}, TRAINS, TRAINS, minutes=5)
    node.does(JOB, HANGS, HANGS, minutes=11, workloads=deployments)
    look = Look(snapshot=_with(node))
    text = render(filled(FAMILIES, look)).decode()
    lines = [line for line in text.splitlines() if line.startswith("pod_gpu_suspected_hang{")]
    of_pod = 'namespace="ns-job",pod="job",workload_name="trainer",workload_kind="Deployment"'
    assert lines == [f'pod_gpu_suspected_hang{{{of_pod},reason="waiting_kernel",node="n"}} 1']


def _with(node: Node) -> Snapshot:
    return Snapshot(
        node="n",
        owners=Owners(),
        joined=None,
        health={},
        assignments_age_seconds=None,
        accounts=node.looks.ledger.accounts,
        hangs=node.watch.hangs,
    )


def test_a_job_that_starves_after_work_waits_for_data() -> None:
    node = Node().does(JOB, TRAINS, TRAINS, minutes=11)
    for number in range(36):
        values = STARVES if number % 3 == 0 else IDLE
        node.does(JOB, values, values, minutes=1 / 3)
    (hang,) = node.suspected
    assert hang.reason == "waiting_for_data"
    assert "in bursts, for 11 min after work at 98%" in hang.message


def _frozen() -> Node:
    node = Node().learned()
    node.is_frozen = True
    return node.does(JOB, HANGS, HANGS, minutes=20)


NEAR_MISSES: Mapping[str, Callable[[], Node]] = {
    "less than ten minutes": lambda: Node().learned().does(JOB, HANGS, HANGS, minutes=9.9),
    "with a break": lambda: (
        Node()
        .learned()
        .does(JOB, HANGS, HANGS, minutes=8)
        .does(JOB, TRAINS, TRAINS, minutes=0.4)
        .does(JOB, HANGS, HANGS, minutes=8)
    ),
    "held for less than ten minutes": lambda: (
        Node().learned().does({"before": whole(0, 1)}, HANGS, HANGS, minutes=8).does(JOB, HANGS, HANGS, minutes=8)
    ),
    "one of its GPUs has no kernel": lambda: Node().learned().does(JOB, HANGS, IDLE, minutes=20),
    "one of its GPUs is on no page": lambda: Node().does(JOB, HANGS, minutes=20),
    "one of its GPUs is on the page no more": lambda: (
        Node().learned().does(JOB, HANGS, HANGS, minutes=8).does(JOB, HANGS, minutes=20)
    ),
    "one of its GPUs works": lambda: Node().learned().does(JOB, HANGS, TRAINS, minutes=20),
    "several containers share a GPU": lambda: (
        Node().learned().does({"job": whole(0, 1), "b": whole(1)}, HANGS, HANGS, minutes=20)
    ),
    "a page that nobody writes any more": _frozen,
    "decodes little": lambda: Node().learned().does(JOB, *[HANGS | {_PROF + "DRAM_ACTIVE": 0.05}] * 2, minutes=20),
    "computes in the caches": lambda: (
        Node().learned().does(JOB, *[HANGS | {_PROF + "PIPE_FP32_ACTIVE": 0.3}] * 2, minutes=20)
    ),
    "computes in the caches, on a page without pipes": lambda: (
        Node(lacks=NO_PIPES).learned().does(JOB, *[HANGS | {_DEV + "POWER_USAGE": 400}] * 2, minutes=20)
    ),
    "writes a checkpoint": lambda: (
        Node().learned().does(JOB, *[HANGS | {_PROF + "PCIE_TX_BYTES": 1.5e10}] * 2, minutes=20)
    ),
    "talks over NVLink": lambda: (
        Node().learned().does(JOB, *[HANGS | {_PROF + "NVLINK_TX_BYTES": 2e10}] * 2, minutes=20)
    ),
    "idle after work, without bursts": lambda: (
        Node().does(JOB, TRAINS, TRAINS, minutes=11).does(JOB, IDLE, IDLE, minutes=20)
    ),
    "bursts without work before": lambda: Node().does(JOB, STARVES, STARVES, minutes=20),
    "bursts after a short work": lambda: (
        Node().does(JOB, TRAINS, TRAINS, minutes=8).does(JOB, STARVES, STARVES, minutes=20)
    ),
    "reads while in bursts": lambda: (
        Node()
        .does(JOB, TRAINS, TRAINS, minutes=11)
        .does(JOB, *[STARVES | {_PROF + "PCIE_RX_BYTES": 5e9}] * 2, minutes=20)
    ),
    "a decoder whose requests cease": lambda: (
        Node()
        .does(JOB, *[TRAINS | {_PROF + "DRAM_ACTIVE": 0.8}] * 2, minutes=11)
        .does(JOB, STARVES, STARVES, minutes=20)
    ),
}


@pytest.mark.parametrize("case", NEAR_MISSES)
def test_nothing_is_said(case: str) -> None:
    node = NEAR_MISSES[case]()
    assert (node.suspected, node.watch.hangs.events) == ((), ())


@pytest.mark.parametrize(
    ("lacks", "is_judged"),
    [
        ((_DEV + "GPU_UTIL", _DEV + "MEM_COPY_UTIL"), True),
        (NO_PIPES, True),  # by the powers that were learned
        ((*NO_PIPES, _PROF + "PIPE_TENSOR_ACTIVE", _PROF + "DRAM_ACTIVE", _PROF + "GR_ENGINE_ACTIVE"), True),
        ((_DEV + "POWER_USAGE",), False),
        ((_PROF + "DRAM_ACTIVE", _DEV + "MEM_COPY_UTIL"), False),
        ((_PROF + "GR_ENGINE_ACTIVE", _DEV + "GPU_UTIL"), False),
        (tuple(family for family in HANGS if family != _DEV + "GPU_UTIL"), False),
    ],
)
def test_what_lacks_the_fields_is_not_judged(lacks: Sequence[str], is_judged: bool) -> None:
    node = Node(lacks=lacks).learned().does(JOB, HANGS, HANGS, minutes=20)
    assert bool(node.suspected) == is_judged


def test_without_learned_powers_the_pipes_must_be_there() -> None:
    assert Node().does(JOB, HANGS, HANGS, minutes=20).suspected
    assert not Node(lacks=NO_PIPES).does(JOB, HANGS, HANGS, minutes=20).suspected


@pytest.mark.parametrize(("minutes", "is_suspected"), [(2 / 3, True), (2, False)])
def test_a_page_that_is_away_for_long_breaks_off(minutes: float, is_suspected: bool) -> None:
    node = Node().learned().does(JOB, HANGS, HANGS, minutes=8)
    for _ in range(round(minutes * 60) // EVERY):
        node.look(None, JOB)
    node.does(JOB, HANGS, HANGS, minutes=5)
    assert bool(node.suspected) == is_suspected


def test_a_mig_instance_is_judged_by_its_own_counters() -> None:
    mig = {"MIG-a": (0, "3", "3g.40gb"), "MIG-b": (0, "4", "3g.40gb")}
    held = {"job": [("nvidia.com/mig-3g.40gb", "MIG-a")], "b": [("nvidia.com/mig-3g.40gb", "MIG-b")]}
    own = {family: value for family, value in HANGS.items() if family.startswith(_PROF)}
    busy = {family: value for family, value in TRAINS.items() if family.startswith(_PROF)}
    power = {_DEV + "POWER_USAGE": 500.0}  # of the GPU, whose other instance works
    for lacks, is_judged in (((), True), (NO_PIPES, False)):
        node = Node(lacks=lacks, mig=mig)
        for _ in range(36):
            pages = (node.page(own | power, instance="3"), node.page(busy | power, instance="4"))
            node.look("".join(pages), held)
        assert [hang.pods for hang in node.suspected] == ([(("ns-job", "job"),)] if is_judged else [])


@pytest.mark.parametrize("is_cut", [False, True])
def test_powers_are_learned_of_gpus_that_are_not_cut(is_cut: bool) -> None:
    """Another GPU's job is judged by them, on a page without pipes."""
    mig = {"MIG-a": (0, "3", "3g.40gb")} if is_cut else {}
    node = Node(lacks=NO_PIPES, mig=mig)
    of_instance = row("DCGM_FI_DEV_SM_CLOCK", "1", 0, "3", "3g.40gb") if is_cut else ""
    other = [("nvidia.com/mig-3g.40gb", "MIG-a")] if is_cut else whole(0)
    for values in (IDLE, TRAINS):
        for _ in range(15):
            node.look(node.page(values) + of_instance, {"other": other})
    for _ in range(36):
        node.look(node.page(TRAINS, HANGS) + of_instance, {"other": other, "job": whole(1)})
    assert bool(node.suspected) == (not is_cut)


@pytest.mark.parametrize(("lacks", "words"), [(NO_PIPES, []), ((), ["100% busy", "and memory rest"])])
def test_of_an_instance_that_a_page_has_as_a_gpu_no_power_counts(lacks: Sequence[str], words: list[str]) -> None:
    node = Node(lacks=lacks)
    held: Held = {"job": [("nvidia.com/mig-3g.40gb", "MIG-a")]}
    for values, minutes in ((IDLE, 5), (TRAINS, 5), (HANGS, 12)):
        for _ in range(minutes * 60 // EVERY):
            node.look(node.page(values).replace(GPU(0), "MIG-a"), held)
    messages = [hang.message for hang in node.suspected]
    assert [word for message in messages for word in (message[:9], message[-15:])] == words


@pytest.mark.parametrize("every", [pytest.param(1, marks=pytest.mark.long), 10, 60, 90])
def test_however_often_it_looks_it_says_the_same(every: int) -> None:
    node = Node(every=every)
    node.does({}, IDLE, IDLE, minutes=20).does({"other": whole(0, 1)}, TRAINS, TRAINS, minutes=20)
    node.does(JOB, HANGS, HANGS, minutes=9)
    assert not node.suspected
    node.seconds += every // 2  # late
    node.does(JOB, HANGS, HANGS, minutes=4)
    assert [hang.reason for hang in node.suspected] == ["waiting_kernel"]


def test_a_page_that_is_away_for_a_moment_changes_nothing_that_is_said() -> None:
    node = Node().learned().does(JOB, HANGS, HANGS, minutes=12)
    before = node.suspected
    node.look(None, JOB)
    assert node.suspected == before
    node.does(JOB, HANGS, HANGS, minutes=1)
    assert len(node.watch.hangs.events) == 1
    for _ in range(4):
        node.look(None, JOB)
    assert not node.suspected


@pytest.mark.parametrize("part", [None, 0.5, 1.0])
def test_of_a_device_of_which_parts_are_granted_nothing_is_said(part: float | None) -> None:
    node = Node()
    grants = {} if part is None else {"job": Grant(allocator="KAI", fraction=part)}
    node.looks = Looks(grants=grants)
    node.learned().does(JOB, HANGS, HANGS, minutes=12)
    assert bool(node.suspected) == (part is None)


@pytest.mark.parametrize("device", [GPU(7), "an-id-of-no-rule"])
def test_a_job_with_a_device_that_no_page_has_is_not_judged(device: str) -> None:
    held: Held = {"job": [*whole(0), ("nvidia.com/gpu", device)], "b": whole(1)}
    node = Node().learned().does(held, HANGS, HANGS, minutes=12)
    assert [hang.pods for hang in node.suspected] == [(("ns-b", "b"),)]


def test_the_last_hundred_events_are_kept() -> None:
    node = Node(every=60).learned()
    for number in range(51):
        held: Held = {f"job{number}": whole(0, 1)}
        node.does(held, HANGS, HANGS, minutes=12).does({}, IDLE, IDLE, minutes=1)
    events = node.watch.hangs.events
    assert len(events) == 100
    assert [(event.is_end, event.hang.pods[0][1]) for event in events[:3]] == [
        (True, "job50"), (False, "job50"), (True, "job49"),
    ]  # fmt: skip


def test_traffic_that_a_page_has_under_two_names_counts_once() -> None:
    looks = Looks()
    families = ("PROF_PCIE_TX_BYTES", "PROF_PCIE_RX_BYTES")
    names = [name for name, of in FIELDS.items() if of.name in families]
    assert len(names) > 2
    joined = looks.snapshot("".join(row(name, "7") for name in names)).joined
    assert joined is not None
    (signs,) = at_once(SignsReader().read(joined)).values()
    assert signs.pcie == 14


@pytest.mark.parametrize("name", ["trainer", ""])
def test_the_pods_of_a_workload_are_judged_together(name: str) -> None:
    """Without workloads, each pod by itself: one waits, and the other one works."""
    waits, works = DeviceKey(uuid="GPU-a"), DeviceKey(uuid="GPU-b")
    owners = [Owner(namespace="ml", pod=pod, container="main") for pod in ("job-0", "job-1")]
    held = [
        JobDevice(key, owner, Job("ml", "" if name else owner.pod, name), "H100")
        for key, owner in zip((waits, works), owners, strict=True)
    ]
    jobs = WatchedJobs()
    for look in range(60):
        watt = look % 5
        at_rest = {"dram": 0.0, "tensor": 0.0, "pipes": 0.0}
        signs = {
            waits: DeviceSigns(gr_engine=1.0, power=140.0 + watt, **at_rest),
            works: DeviceSigns(gr_engine=1.0, power=600.0 + watt, dram=0.4, tensor=0.4, pipes=0.1),
        }
        hangs = jobs.look(jobs_of(held), signs, {}, look * EVERY * SECOND)
    assert [hang.holders for hang in hangs] == ([] if name else [(owners[0],)])
