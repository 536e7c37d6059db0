"""Which families the simulated dcgm-exporter has, held against the file that the DaemonSet gives to the real one."""

import re

import pytest

from exporter.simulator.dcgm_pages import COUNTERS, GENERATIONS, families_of
from tests.support import quick_yaml
from tests.support.places import ROOT

LABEL = "label"


def shipped() -> list[str]:
    objects = quick_yaml.load_all((ROOT / "daemonset.yaml").read_text())
    (counters,) = (found["data"]["counters.csv"] for found in objects if found["kind"] == "ConfigMap")
    lines = [line for line in counters.splitlines() if line.strip() and not line.startswith("#")]
    return [line for line in lines if line.split(", ")[1] != LABEL]


def test_the_full_list_is_that_of_the_daemonset() -> None:
    made = [f"{family.name}, {family.kind}, {family.help}" for family in families_of("4.8", "full")]
    assert made == shipped()


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("counters", COUNTERS)
def test_names_are_valid_and_given_once(generation: str, counters: str) -> None:
    families = families_of(generation, counters)
    names = [family.newer if generation == "4.9" else family.name for family in families]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"DCGM_(FI|EXP)_[A-Z0-9_]+", name) for name in names)
    assert len(names) >= 25
