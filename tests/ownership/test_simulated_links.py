"""The simulated pages of each generation of names and of NVLink are read to one verdict."""

import pytest

from exporter.model.health import DeviceVerdict
from exporter.simulator.simulated_links import AMPERE, BLACKWELL, HOPPER, BadLink, NvlinkHardware
from tests.ownership.test_link_errors import Pages
from tests.simulator.test_node import Time
from tests.support.simulated import SimulatedDcgm, World

HOUR = 3600.0
HARDWARE = {"Ampere": AMPERE, "Hopper": HOPPER, "Blackwell": BLACKWELL}


def of_links(verdict: DeviceVerdict) -> list[str]:
    """What is said of links. A simulated fan may be broken, too."""
    assert {reason.reason for reason in verdict.reasons} <= {"nvlink", "hot"}
    return [reason.message for reason in verdict.reasons if reason.reason == "nvlink"]


@pytest.mark.parametrize("with_links", [False, True], ids=["totals", "by link"])
@pytest.mark.parametrize("generation", ["3", "4.8", "4.9"])
@pytest.mark.parametrize("hardware", HARDWARE)
def test_a_bad_link_gives_one_verdict_whatever_the_names(hardware: str, generation: str, with_links: bool) -> None:
    time = Time()
    world = World(gpus=1, seed=3, clock=time)
    world.machine.nvlink = HARDWARE[hardware]
    dcgm = SimulatedDcgm(world, generation=generation, counters="full", with_links=with_links)
    pages = Pages()
    assert of_links(pages.look(dcgm.page())) == []
    (gpu,) = world.gpus
    world.machine.links[gpu.uuid].bad[5] = BadLink(0.0, per_hour=200.0, flaps_seconds=600.0)
    time.sleep(HOUR - 60)
    verdict = pages.look(dcgm.page(), at=HOUR - 60)
    assert verdict.verdict == "degraded"
    (message,) = of_links(verdict)
    names_link = with_links and hardware != "Blackwell"  # whose rows of links count what went down, and not replays
    assert message.startswith("errors of NVLink on link 5 within" if names_link else "errors of NVLink within")
    assert message.count("recoveries") == 1
    assert ("replays" in message) is (hardware != "Blackwell")
    # the driver is loaded anew, and an hour later the errors are of long ago
    world.machine.reload(gpu.uuid)
    world.machine.links[gpu.uuid].bad.clear()
    assert of_links(pages.look(dcgm.page(), at=HOUR)) == [message]
    time.sleep(HOUR)
    assert of_links(pages.look(dcgm.page(), at=3 * HOUR)) == []


@pytest.mark.parametrize("hardware", [AMPERE, HOPPER, BLACKWELL], ids=HARDWARE)
def test_a_page_without_the_counters_of_links_says_nothing_of_them(hardware: NvlinkHardware) -> None:
    time = Time()
    world = World(gpus=1, seed=3, clock=time)
    world.machine.nvlink = hardware
    world.machine.links[world.gpus[0].uuid].bad[5] = BadLink(0.0, per_hour=200.0)
    dcgm = SimulatedDcgm(world, generation="3")
    pages = Pages()
    pages.look(dcgm.page())
    time.sleep(HOUR)
    assert of_links(pages.look(dcgm.page(), at=HOUR)) == []
