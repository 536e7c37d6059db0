"""The simulated node as a scraper sees it, over hours of a clock that the test sets."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise

import pytest

from exporter.simulator.dcgm_pages import COUNTERS, GENERATIONS, NVLINK, SimulatedFamily, families_of
from exporter.simulator.parts import GPU_RESOURCE, PROFILES, SHARED_RESOURCE, Container, Pod
from tests.support.simulated import SimulatedDcgm, World

ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
POWER = "DCGM_FI_DEV_POWER_USAGE"
SECOND = 1_000_000_000
SAMPLE = re.compile(r"(\w+)\{(.*)\} (\S+)")
MIXED = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb+me")
OF_THE_WHOLE_GPU = (
    *(
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
        "DCGM_FI_DEV_GPU_TEMP",
        "DCGM_FI_DEV_MEMORY_TEMP",
        POWER,
        ENERGY,
    ),
    *("DCGM_FI_DEV_ENC_UTIL", "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_XID_ERRORS"),
    *("DCGM_FI_DEV_POWER_VIOLATION", "DCGM_FI_DEV_THERMAL_VIOLATION", "DCGM_FI_DEV_LOW_UTIL_VIOLATION"),
    *("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
    *("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_NVLINK_TX_BYTES"),
)
# an H100 does not measure the first, and the others begin with the first event
XID_COUNT = SimulatedFamily(name="DCGM_EXP_XID_ERRORS_COUNT", help="XIDs of the last minutes.")
ABSENT = re.compile(r"DCGM_FI_DEV_(GPU_)?NVLINK_\w*(ERROR|RECOVERY|REPLAY)\w*|DCGM_EXP_\w+_TOTAL|")
Page = Mapping[str, Mapping[str, str]]


class Time:
    """A clock that stands until the test sets it on."""

    def __init__(self) -> None:
        self.ns = 1_000

    def __call__(self) -> int:
        return self.ns

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * SECOND)


@pytest.fixture
def time() -> Time:
    return Time()


def families(page: str) -> Page:
    """The values of each family by the labels."""
    found: dict[str, dict[str, str]] = {}
    for line in page.splitlines():
        if sample := SAMPLE.fullmatch(line):
            assert sample[2] not in found.setdefault(sample[1], {}), line
            found[sample[1]][sample[2]] = sample[3]
    return found


def counters(page: str) -> dict[str, float]:
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE))
    values = families(page)
    assert set(kinds) == set(values)
    return {
        f"{name}{{{labels}}}": float(value)
        for name, rows in values.items()
        if kinds[name] == "counter"
        for labels, value in rows.items()
    }


def of_instances(page: str, family: str) -> dict[tuple[str, str], str]:
    """The values on rows of instances, by index of the GPU and GPU_I_ID."""
    rows = families(page).get(family, {})
    found = {re.search(r'gpu="(\d+)".*GPU_I_ID="(\d+)"', labels): value for labels, value in rows.items()}
    return {(match[1], match[2]): value for match, value in found.items() if match}


def hold(world: World, *held: tuple[str, str], workload: str = "train-resnet") -> None:
    """The world's only pods: one for each device."""
    world.pods = tuple(
        Pod(
            namespace="ml",
            name=f"pod-{number}",
            uid=f"uid-{number}",
            owner=("ReplicaSet", workload),
            containers=(Container(name="main", devices=(device,)),),
        )
        for number, device in enumerate(held)
    )


# issue 9, A: counters never fall; in every generation, with either counters file, whatever happens to the pods
@pytest.mark.parametrize("speed", [1, 60])
def test_what_is_typed_a_counter_never_falls(time: Time, speed: float) -> None:
    world = World(gpus=6, shared=1, mig=1, claims=1, cut=MIXED, seed=3, speed=speed, clock=time)
    shown = [
        SimulatedDcgm(world, generation=generation, counters=name, with_parents=with_parents)
        for generation in GENERATIONS
        for name in COUNTERS
        for with_parents in (False, True)
    ]
    last = [counters(each.page()) for each in shown]
    first = last
    for moment in range(15):
        time.sleep(127.7)
        world.live()
        if moment == 7:
            cut = next(gpu for gpu in world.gpus if gpu.instances)
            world.recut(cut, ("4g.40gb", "3g.40gb"))
            world.recut(world.gpus[-1], MIXED)
        if moment % 2:
            continue
        now = [counters(each.page()) for each in shown]
        for before, after in zip(last, now, strict=True):
            assert set(before) <= set(after)
            assert {name: (value, after[name]) for name, value in before.items() if after[name] < value} == {}
        last = now
    assert world.machine.xids, "crashes were part of it"
    for before, after in zip(first, last, strict=True):
        grown = {name.partition("{")[0] for name, value in after.items() if value > before.get(name, 0)}
        assert any("ENERGY" in name or "energy" in name for name in grown)


# issue 9, A: energy is power's integral
def test_power_times_time_is_energy_to_the_digit(time: Time) -> None:
    world = World(gpus=4, shared=1, mig=1, seed=5, clock=time)
    dcgm = SimulatedDcgm(world, with_parents=True)
    wanted: dict[str, int] | None = None
    for second in range(120):
        page = families(dcgm.page())
        energy = {labels: int(value) for labels, value in page[ENERGY].items()}
        wanted = wanted or energy
        assert energy == wanted, second
        milliwatts = {labels: round(float(value) * 1000) for labels, value in page[POWER].items()}
        wanted = {labels: value + milliwatts[labels] for labels, value in wanted.items()}
        time.sleep(1)


# issue 9, A: it was 3,367 Wh where 292 are possible
@pytest.mark.parametrize("speed", [1, 60])
def test_five_gpus_draw_no_more_than_they_can(time: Time, speed: float) -> None:
    world = World(gpus=5, seed=2, speed=speed, clock=time)
    dcgm = SimulatedDcgm(world)
    for _ in range(12):
        before = {labels: int(value) for labels, value in families(dcgm.page())[ENERGY].items()}
        for _ in range(60):
            time.sleep(5)
            world.live()
        after = {labels: int(value) for labels, value in families(dcgm.page())[ENERGY].items()}
        drawn = sum(after[labels] - value for labels, value in before.items()) / 3_600_000
        assert 5 * 70 * 300 / 3600 < drawn < 292
    assert world.energy_mj(world.gpus[0].uuid) == next(iter(after.values()))


def test_what_is_seen_does_not_depend_on_who_looks(time: Time) -> None:
    worlds = [World(gpus=4, shared=1, mig=1, seed=9, clock=time) for _ in range(2)]
    often, seldom = (SimulatedDcgm(world, generation="4.8", counters="full") for world in worlds)
    for moment in range(80):
        time.sleep(1.37)
        often.page()
        if moment % 40 == 0:
            for world in worlds:
                world.live()
    assert often.page() == seldom.page()


@pytest.mark.parametrize("generation", ["3", "4.8", "4.9"])
def test_memory_adds_up(time: Time, generation: str) -> None:
    world = World(gpus=5, shared=2, mig=1, cut=MIXED, seed=4, speed=60, clock=time)
    dcgm = SimulatedDcgm(world, generation=generation, counters="full", with_parents=True)
    names = ("TOTAL", "USED", "FREE", "RESERVED")
    if generation == "4.9":
        names = ("CAPACITY_BYTES", "USED_BYTES", "FREE_BYTES", "RESERVED_BYTES")
    seen = set()
    for _ in range(15):
        time.sleep(100)
        world.live()
        page = families(dcgm.page())
        for labels in page[f"DCGM_FI_DEV_FB_{names[0]}"]:
            total, used, free, reserved = (float(page[f"DCGM_FI_DEV_FB_{name}"][labels]) for name in names)
            assert used + free + reserved == total
            assert min(used, free, reserved) >= 0
            seen.add(used)
    assert len(seen) > 20


# issue 9, A: MIG as dcgm-exporter writes it
def test_an_instances_row_has_its_own_memory_and_activity(time: Time) -> None:
    world = World(gpus=2, mig=1, cut=MIXED, seed=4, clock=time)
    gpu = world.gpus[1]
    hold(world, *gpu.slots[:2], (GPU_RESOURCE, world.gpus[0].uuid))
    time.sleep(600)
    dcgm = SimulatedDcgm(world, counters="full")
    page = dcgm.page()
    assert f'gpu="1",UUID="{gpu.uuid}",pci_bus_id="00000000:2B:00.0",device="nvidia1",modelName=' in page
    by_id = {str(mig.instance_id): mig for mig in gpu.instances}
    assert [mig.instance_id for mig in gpu.instances] == [1, 3, 7, 13]
    for name in OF_THE_WHOLE_GPU:
        values = of_instances(page, name)
        assert (len(values), len(set(values.values()))) == (4, 1), name
    for name in ("GPU_UTIL", "MEM_COPY_UTIL"):
        assert len(families(page)[f"DCGM_FI_DEV_{name}"]) == 1, "on the GPU that is whole alone"
    # no row of the parent
    assert all("GPU_I_ID" in labels for rows in families(page).values() for labels in rows if gpu.uuid in labels)
    own = of_instances(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    busy = {number for (_, number), value in own.items() if float(value)}
    assert busy == {"1", "3"}
    totals = of_instances(page, "DCGM_FI_DEV_FB_TOTAL")
    assert {number: int(value) for (_, number), value in totals.items()} == {
        number: PROFILES[mig.profile].memory for number, mig in by_id.items()
    }
    # power follows activity times compute slices
    activity = sum(float(value) * PROFILES[by_id[number].profile].slices / 7 for (_, number), value in own.items())
    (watts,) = {float(value) for value in of_instances(page, POWER).values()}
    assert watts == pytest.approx(70 + 670 * activity, abs=0.01)
    # with the parent's row, as -d g,i has it
    with_parent = families(SimulatedDcgm(world, counters="full", with_parents=True).page())
    (parent,) = (labels for labels in with_parent[POWER] if gpu.uuid in labels and "GPU_I_ID" not in labels)
    assert float(with_parent[POWER][parent]) == watts
    assert parent not in with_parent["DCGM_FI_DEV_GPU_UTIL"]


def test_a_gpu_is_cut_anew(time: Time) -> None:
    world = World(gpus=2, mig=1, seed=4, clock=time)
    dcgm = SimulatedDcgm(world)
    old = world.gpus[1]
    hold(world, (GPU_RESOURCE, world.gpus[0].uuid), *old.slots[:3])
    before = world.energy_mj(old.uuid)
    new = world.recut(old, ("3g.40gb", "1g.20gb", "1g.10gb+me"))
    assert [pod.name for pod in world.pods] == ["pod-0"]
    assert [resource for resource, _ in new.slots] == [
        "nvidia.com/mig-3g.40gb",
        "nvidia.com/mig-1g.20gb",
        "nvidia.com/mig-1g.10gb.me",
    ]
    assert {mig.device_id for mig in new.instances}.isdisjoint(mig.device_id for mig in old.instances)
    time.sleep(10)
    assert len(of_instances(dcgm.page(), POWER)) == 3
    assert world.energy_mj(old.uuid) == before + 70_000 * 10
    whole = world.recut(new, ())
    assert whole.slots == ((GPU_RESOURCE, old.uuid),)
    assert of_instances(dcgm.page(), POWER) == {}


@pytest.mark.parametrize(
    "cut",
    [
        ("4g.40gb", "4g.40gb"),
        ("1g.10gb",) * 8,
        ("1g.10gb+me",) * 2,
        ("3g.20gb",),
        ("1g.24gb",) * 5,
        ("1g.10gb", "1g.24gb"),
    ],
)
def test_no_gpu_is_cut_as_none_can_be(cut: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="no GPU can be cut"):
        World(gpus=1, mig=1, cut=cut)


# issue 9, A: XID values stick, whoever comes next
def test_an_xid_sticks(time: Time) -> None:
    world = World(gpus=1, seed=1, clock=time)
    uuid = world.gpus[0].uuid
    dcgm = SimulatedDcgm(world, generation="4.8", families=(*families_of("4.8", "full"), XID_COUNT))

    def xids() -> Iterator[tuple[str, str]]:
        for name in ("FI_DEV_XID_ERRORS", "EXP_XID_ERRORS_TOTAL", "EXP_XID_ERRORS_COUNT"):
            for labels, value in families(dcgm.page()).get(f"DCGM_{name}", {}).items():
                yield labels.partition('580.105.08"')[2], value

    assert list(xids()) == [
        (',err_code="0",err_msg="No Error"', "0"),
        (',window_size_in_ms="300000"', "0"),
    ]
    hold(world, (GPU_RESOURCE, uuid))
    time.sleep(100)
    failed = world.crash(world.pods[0], 31)
    assert failed.has_ended
    hold(world, (GPU_RESOURCE, uuid), workload="jupyter")
    time.sleep(200)
    came = (',err_code="31",err_msg="GPU memory page fault"', "31")
    assert list(xids()) == [came, (',xid="31"', "1"), (',window_size_in_ms="300000",xid="31"', "1")]
    # a service starts again, with its device, and the count forgets what is long ago
    waiting = world.crash(world.pods[0], 31)
    assert not waiting.has_ended
    assert waiting in world.listed
    assert not any(container.running for container in waiting.containers)
    assert list(xids())[1:] == [(',xid="31"', "2"), (',window_size_in_ms="300000",xid="31"', "2")]
    time.sleep(200)
    assert list(xids()) == [came, (',xid="31"', "2"), (',window_size_in_ms="300000",xid="31"', "1")]
    time.sleep(200)
    assert list(xids()) == [came, (',xid="31"', "2"), (',window_size_in_ms="300000"', "0")]
    # a new process of dcgm-exporter knows nothing of it; the driver's counters go on
    before = families(dcgm.page())[ENERGY]
    dcgm.begin_anew()
    assert list(xids()) == [(',err_code="0",err_msg="No Error"', "0"), (',window_size_in_ms="300000"', "0")]
    assert families(dcgm.page())[ENERGY] == before


# issue 9, A: the node is never empty for long
@pytest.mark.parametrize("shape", [{}, {"shared": 2, "mig": 1}, {"mig": 8}, {"claims": 3, "shared": 5}])
def test_the_node_is_never_empty_for_long(time: Time, shape: dict[str, int]) -> None:
    world = World(gpus=8, seed=6, clock=time, **shape)  # type: ignore[arg-type]
    held = []
    for _ in range(300):
        world.live()
        held.append(world.used_share)
    assert min(held) >= 0.25
    assert all(max(two) >= 0.6 for two in pairwise(held))
    assert len(set(held)) > 2


# issue 9, A: now and then a crash with an XID, and a thermal slowdown
def test_a_node_has_its_bad_moments_and_they_are_few(time: Time) -> None:
    world = World(gpus=8, shared=2, mig=1, seed=1, clock=time)
    for _ in range(2 * 240):
        time.sleep(15)
        world.live()
    events = [board.events for board in world.machine.boards.values()]
    assert 5 < sum(map(len, world.machine.xids.values())) < 80
    assert 1 <= sum(event["sw_thermal"] for event in events) < 60
    assert sum(event["power_cap"] for event in events) > 10
    hot = sum(board.violations_ns["THERMAL_VIOLATION"] for board in world.machine.boards.values())
    assert 5 < hot / SECOND < 0.05 * 8 * 2 * 3600


def test_shares_of_a_gpu_add_up_to_what_it_does(time: Time) -> None:
    world = World(gpus=1, shared=1, seed=1, clock=time)
    uuid = world.gpus[0].uuid
    dcgm = SimulatedDcgm(world)
    shown: list[tuple[float, int]] = []
    for count in range(5):
        hold(world, *((SHARED_RESOURCE, f"{uuid}::{share}") for share in range(count)))
        time.sleep(400)
        page = families(dcgm.page())
        (active,) = page["DCGM_FI_PROF_GR_ENGINE_ACTIVE"].values()
        (used,) = page["DCGM_FI_DEV_FB_USED"].values()
        shown.append((float(active), int(used)))
    nobody, one, *several = shown
    assert list(nobody) == [0, 0]
    assert one[0] > 0.7
    assert {active for active, _ in several} == {1}
    # each has its part of the memory
    assert [round(used / one[1], 1) for _, used in shown] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("name", COUNTERS)
def test_every_family_has_samples(time: Time, generation: str, name: str) -> None:
    page = SimulatedDcgm(World(gpus=2, seed=1, clock=time), generation=generation, counters=name).page()
    wanted = {
        {"1": family.oldest, "4.9": family.newer}.get(generation, family.name)
        for family in families_of(generation, name)
    }
    assert {family for family in wanted - set(families(page)) if not ABSENT.fullmatch(family)} == set()


def test_a_rate_that_is_typed_a_counter_stands_still(time: Time) -> None:
    """DCGM's NVLINK_BANDWIDTH_TOTAL is a rate; the counters file up to 4.8.2 types it a counter all the same."""
    world = World(gpus=2, seed=1, clock=time)
    uuids = [gpu.uuid for gpu in world.gpus]
    devices = tuple((GPU_RESOURCE, uuid) for uuid in uuids)
    world.pods = (Pod(namespace="ml", name="a", containers=(Container(name="main", devices=devices),)),)
    time.sleep(600)
    shown = {
        (generation, name): set(
            families(SimulatedDcgm(world, generation=generation, counters=name).page())[NVLINK].values()
        )
        for generation, name in (("3", "default"), ("3", "full"), ("4.8", "default"))
    }
    assert shown.pop(("3", "default")) == {"0"}
    assert all(float(value) > 10_000 for values in shown.values() for value in values)
