"""The simulated NVLinks: what healthy, bad and reloaded ones count, and on which pages it is."""

import math
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.simulator.fail_flag import Fails, fails_of
from exporter.simulator.link_failure import LINK, LinkFailure
from exporter.simulator.simulated_links import AMPERE, BLACKWELL, HOPPER, BadLink, NvlinkHardware, SimulatedLinks
from exporter.simulator.world import ids_of
from tests.simulator.test_node import Time
from tests.support.simulated import SimulatedDcgm, World

DAY = 86_400.0
HARDWARE = {"Ampere": AMPERE, "Hopper": HOPPER, "Blackwell": BLACKWELL}
SAMPLE = re.compile(r"(?P<name>\w+)\{(?P<labels>[^}]*)\} (?P<value>\S+)")
NUMBER = re.compile(r"_L(\d+)\b")


def test_healthy_links_have_a_few_replays_and_never_recover() -> None:
    """As issue 9086 of marin-community/marin found it on 320 GPUs."""
    fleet = [SimulatedLinks(f"GPU-{number}") for number in range(320)]
    months = [links.errors(link, 30 * DAY) for links in fleet for link in range(18)]
    days = [errors.replays / 30 for errors in months]
    assert max(days) < 3
    assert 0.03 < sum(day > 0 for day in days) / len(days) < 0.07
    assert not any(errors.recoveries for errors in months)


def test_a_bad_link_has_more_errors_from_day_to_day() -> None:
    links = SimulatedLinks("GPU-a", {5: BadLink(DAY, per_hour=10.0, doubles_seconds=DAY)})
    well = SimulatedLinks("GPU-a")
    assert links.errors(5, DAY) == well.errors(5, DAY)
    counts = [links.errors(5, day * DAY).replays for day in range(1, 7)]
    growth = [late - early for early, late in pairwise(counts)]
    # 240 a day if they stayed as they began; they double within each day
    assert growth[0] == pytest.approx(240 / math.log(2), abs=10)
    assert growth == sorted(growth)
    assert growth[4] == pytest.approx(16 * growth[0], rel=0.1)
    assert links.errors(4, 6 * DAY) == well.errors(4, 6 * DAY)


def test_a_link_that_flaps_recovers_each_time() -> None:
    """Three times in 21 minutes, as that of issue 9086."""
    links = SimulatedLinks("GPU-a", {14: BadLink(0.0, flaps_seconds=420.0)})
    assert links.errors(14, 21 * 60).recoveries == 3


@given(
    st.floats(0, 30 * DAY),
    st.lists(st.floats(0, 30 * DAY), min_size=2, max_size=9),
    st.floats(0, 500),
    st.one_of(st.just(math.inf), st.floats(60, DAY)),
)
def test_counters_never_fall_but_at_a_reload(began: float, moments: list[float], per_hour: float, flaps: float) -> None:
    links = SimulatedLinks("GPU-a", {2: BadLink(began, per_hour, doubles_seconds=10 * DAY, flaps_seconds=flaps)})
    moments.sort()
    before = [links.errors(2, moment) for moment in moments]
    for early, late in pairwise(before):
        assert all(one <= other for one, other in zip(early, late, strict=True))
    links.loaded = moments[0]
    assert not any(links.errors(2, moments[0]))
    # from then on they grow by as much
    last = zip(links.errors(2, moments[-1]), before[-1], before[0], strict=True)
    assert all(since == late - early for since, late, early in last)


def read(dcgm: SimulatedDcgm, uuid: str) -> tuple[dict[str, float], dict[str, dict[int, float]]]:
    """A GPU's totals, and the counts of its links, by family; of one with the number in its name without that."""
    totals: dict[str, float] = {}
    of_links: dict[str, dict[int, float]] = {}
    for name, labels, value in SAMPLE.findall(dcgm.page()):
        if "NVLINK" not in name or f'uuid="{uuid}"' not in labels.lower().replace("gpu-", "GPU-"):
            continue
        if "nvlink=" in labels:
            assert labels.startswith('nvlink="')
            assert "gpu_uuid=" in labels
            link = int(labels.split('"')[1])
            of_links.setdefault(name, {})[link] = float(value)
        elif (number := NUMBER.search(name)) is not None:
            of_links.setdefault(name.replace(number[0], ""), {})[int(number[1])] = float(value)
        else:
            totals[name] = float(value)
    return totals, of_links


@pytest.mark.parametrize("generation", ["3", "4.8", "4.9"])
@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE)
def test_a_page_has_the_counts_of_its_generation_of_names_and_of_links(
    hardware: NvlinkHardware, generation: str
) -> None:
    time = Time()
    world = World(gpus=2, mig=1, seed=3, clock=time)
    world.machine.nvlink = hardware
    dcgm = SimulatedDcgm(world, generation=generation, counters="full", with_links=True)
    gpu, cut = world.gpus
    world.machine.links[gpu.uuid].bad[5] = BadLink(0.0, per_hour=200.0, flaps_seconds=600.0)
    time.sleep(3600)
    totals, of_links = read(dcgm, gpu.uuid)
    errors = world.machine.links[gpu.uuid].errors(5, 3600.0)
    assert errors.recoveries == 8  # six flaps, and one for each hundred replays
    recoveries = {name: counts for name, counts in of_links.items() if "RECOVER" in name}
    assert recoveries
    for counts in recoveries.values():
        assert counts == {link: 8 * (link == 5) for link in range(hardware.links)}
    assert any("RECOVER" in name and value == 8 for name, value in totals.items())
    for name, counts in of_links.items():
        if "REPLAY" in name:
            assert counts[5] == errors.replays
        if "CRC" in name:
            assert counts[5] == (errors.crc_flit if "FLIT" in name else errors.crc_data)
    # a reload of the driver, and a page without these families
    world.machine.reload(gpu.uuid)
    again, of_links_again = read(dcgm, gpu.uuid)
    assert not any(value for name, value in again.items() if name in totals and "BYTES" not in name)
    assert not any(value for counts in of_links_again.values() for value in counts.values())
    assert not [name for name in read(SimulatedDcgm(world, generation=generation), gpu.uuid)[0] if "ERROR" in name]
    assert set(read(dcgm, cut.uuid)[1]) == set(of_links)


def test_the_shell_version_knows_no_links() -> None:
    world = World(gpus=1, seed=3, clock=Time())
    assert "nvlink=" not in SimulatedDcgm(world, generation="1", counters="full", with_links=True).page()


def test_a_link_of_a_held_gpu_goes_bad() -> None:
    time = Time()
    world = World(gpus=8, shared=2, mig=1, seed=2, clock=time)
    failure = LinkFailure(world, after_seconds=60.0)
    failure.look()
    assert not failure.gpu
    time.sleep(60)
    failure.look()
    (gpu,) = (gpu for gpu in world.gpus if gpu.uuid == failure.gpu)
    holders = [pod for pod in world.pods if not ids_of(gpu).isdisjoint(pod.devices)]
    assert holders
    assert not gpu.instances
    time.sleep(3600)
    world.machine.advance()
    assert world.machine.links[gpu.uuid].errors(LINK, world.machine.seconds).replays > 200
    assert [links.uuid for links in world.machine.links.values() if links.bad] == [gpu.uuid]


def test_nothing_goes_bad_while_nobody_holds_a_gpu() -> None:
    world = World(gpus=2, seed=2, clock=Time())
    for pod in world.pods:
        world.end(pod)
    failure = LinkFailure(world, after_seconds=0.0)
    failure.look()
    assert not failure.gpu


@pytest.mark.parametrize(
    ("text", "fails"),
    [
        ("30", Fails(gpu_seconds=30.0)),
        ("0", Fails(gpu_seconds=0.0)),
        ("gpu", Fails(gpu_seconds=30.0)),
        ("gpu:5", Fails(gpu_seconds=5.0)),
        ("link", Fails(link_seconds=30.0)),
        ("link:0.5", Fails(link_seconds=0.5)),
    ],
)
def test_what_fails_is_read(text: str, fails: Fails) -> None:
    assert fails_of(text) == fails


@pytest.mark.parametrize("text", ["-1", "soon", "link:soon", "link:-1", "inf", "nan", "cable"])
def test_what_nobody_can_read_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="neither seconds nor"):
        fails_of(text)
