"""The names of the metrics that somebody serves."""

import re

from exporter.simulator.dcgm import SimulatedDcgm
from exporter.simulator.dcgm_pages import COUNTERS, GENERATIONS, families_of
from tests.support.simulated import World


def names_on(page: str) -> set[str]:
    """The metrics of a page that have samples."""
    return set(re.findall(r"^([a-zA-Z_:][\w:]*)(?=[{ ])", page, re.MULTILINE))


def simulated_names() -> set[str]:
    """The metrics of all generations' pages, with either list of fields, and what they have of other models of GPU."""
    found = set()
    for generation in GENERATIONS:
        for counters in COUNTERS:
            world = World(gpus=4, shared=1, mig=1, seed=1)
            dcgm = SimulatedDcgm(world, host_name="n", generation=generation, counters=counters, with_links=True)
            found |= names_on(dcgm.page())
            of_others = families_of(generation, counters)
            found |= {family.newer if generation == "4.9" else family.name for family in of_others if family.name}
    return found
