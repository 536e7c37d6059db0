"""The powers of a model, idle and at work: what teaches them, and which of the powers that were seen they are."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from exporter.accounts.hang_signs import DeviceSigns
from exporter.accounts.power_levels import PowerLevels, PowersOfModels

AT_REST = DeviceSigns(gr_engine=0.0, power=70.0, tensor=0.0, dram=0.0)
AT_WORK = DeviceSigns(gr_engine=1.0, power=600.0, tensor=0.5, dram=0.5)


def learned(*looks: tuple[int, DeviceSigns]) -> Mapping[str, tuple[float, float]]:
    """What is learned of a model from so many looks of each kind."""
    powers = PowersOfModels()
    for number, signs in looks:
        for _ in range(number):
            powers.note("H100", signs)
    powers.settle()
    return {model: (level.idle, level.busy) for model, level in powers.levels.items()}


def test_powers_are_learned_in_steps_of_two_watts() -> None:
    for odd in (0.0, 1.9):
        rests, works = replace(AT_REST, power=70.0 + odd), replace(AT_WORK, power=600.0 + odd)
        assert learned((20, rests), (20, works)) == {"H100": (71.0, 601.0)}
    assert learned((20, replace(AT_REST, power=72.0)), (20, AT_WORK)) == {"H100": (73.0, 601.0)}


def test_twelve_looks_of_each_teach_a_model() -> None:
    assert learned((12, AT_REST), (12, AT_WORK))
    assert not learned((11, AT_REST), (12, AT_WORK))
    assert not learned((12, AT_REST), (11, AT_WORK))
    assert not learned((12, AT_REST))
    assert not learned((12, AT_WORK))


def test_idle_is_a_low_power_at_rest_and_busy_a_high_one_at_work() -> None:
    low, high = replace(AT_REST, power=50.0), replace(AT_WORK, power=500.0)
    for lows, idle in ((5, 71.0), (6, 51.0)):
        assert learned((lows, low), (100 - lows, AT_REST), (20, AT_WORK)) == {"H100": (idle, 601.0)}
    for lows, busy in ((90, 601.0), (91, 501.0)):
        assert learned((20, AT_REST), (lows, high), (100 - lows, AT_WORK)) == {"H100": (71.0, busy)}


@pytest.mark.parametrize(
    ("rests", "works", "is_learned"),
    [
        ({}, {}, True),
        ({"gr_engine": 0.001}, {}, True),
        ({"gr_engine": 0.002}, {}, False),
        ({"power": None}, {}, False),
        ({"power": 0.0}, {}, False),
        ({"gr_engine": None}, {}, False),
        ({"gr_engine": None, "utilization": 0.0}, {}, True),
        ({}, {"gr_engine": 0.5}, True),
        ({}, {"gr_engine": 0.49}, False),
        # the tensor cores or the memory are at work
        ({}, {"tensor": 0.05, "dram": 0.0}, True),
        ({}, {"tensor": 0.04, "dram": 0.0}, False),
        ({}, {"tensor": 0.0, "dram": 0.05}, True),
        ({}, {"tensor": 0.0, "dram": 0.04}, False),
        ({}, {"tensor": None, "dram": 0.04}, False),
        ({}, {"tensor": 0.04, "dram": None}, False),
        ({}, {"tensor": None, "dram": None}, False),
        # a model whose GPUs draw as much at rest as at work tells nothing
        ({"power": 601.0}, {}, False),
        ({"power": 598.0}, {}, True),
    ],
)
def test_what_teaches_a_model(rests: dict[str, float | None], works: dict[str, float | None], is_learned: bool) -> None:
    looks = ((20, replace(AT_REST, **rests)), (20, replace(AT_WORK, **works)))
    assert bool(learned(*looks)) == is_learned


def test_new_powers_have_weight_after_a_long_time() -> None:
    """After 8192 looks all of them count for half."""
    before = replace(AT_WORK, power=500.0)
    assert learned((20, AT_REST), (8_192, before), (455, AT_WORK)) == {"H100": (71.0, 501.0)}
    assert learned((20, AT_REST), (8_192, before), (456, AT_WORK)) == {"H100": (71.0, 601.0)}


def test_a_power_lies_at_a_part_of_the_way_from_idle_to_busy() -> None:
    assert [PowerLevels(idle=100.0, busy=300.0).part(watts) for watts in (100, 150, 300)] == [0, 0.25, 1]
