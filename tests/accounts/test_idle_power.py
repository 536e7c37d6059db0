"""The power of a model at rest: the lowest that was seen, or what the line through active times says."""

import pytest

from exporter.accounts.idle_power import IdlePower, Power

SECOND = 1_000_000_000


def watts(power: float, seconds: int = 10) -> Power:
    """Microjoules, and the nanoseconds in which they were drawn."""
    return round(power * seconds * 1_000_000), seconds * SECOND


def of(*powers: float, nobodys: tuple[float, ...] = ()) -> IdlePower:
    idle = IdlePower()
    for power in powers:
        idle.note(watts(power), is_nobodys=False)
    for power in nobodys:
        idle.note(watts(power), is_nobodys=True)
    return idle


def test_the_power_at_rest_is_unknown_without_a_measurement() -> None:
    assert IdlePower().power is None


def test_the_lowest_power_counts_until_a_gpu_rests() -> None:
    assert of(90, 60, 70).power == watts(60)
    assert of(60, nobodys=(75, 70)).power == watts(70)
    idle = of(60, nobodys=(75,))
    idle.note(watts(74), is_nobodys=False)  # a lower power than at rest is a better estimate
    idle.note(watts(76), is_nobodys=False)
    assert idle.power == watts(74)


def test_times_of_other_lengths_are_compared_by_their_power() -> None:
    idle = of(60)
    idle.note(watts(61, seconds=1), is_nobodys=False)
    assert idle.power == watts(60)
    idle.note(watts(59, seconds=100), is_nobodys=False)
    assert idle.power == watts(59, seconds=100)
    idle.note(watts(59, seconds=10), is_nobodys=False)
    assert idle.power == watts(59, seconds=100)


def on_a_line(times: int, off: float = 0.0) -> IdlePower:
    """A GPU that draws 60 W at rest and 400 W at work, and works half of the time or more; `off` watts scatter that."""
    idle = IdlePower()
    for number in range(times):
        active = 0.5 + 0.5 * (number % 5) / 4
        power = watts(60 + 340 * active + (off if number % 2 else -off))
        idle.note(power, is_nobodys=False)
        idle.note_active(power, round(active * 10 * SECOND))
    return idle


def test_a_line_through_active_times_gives_the_power_at_rest_of_a_busy_gpu() -> None:
    microjoules, nanoseconds = on_a_line(10).power or (0, 1)
    assert abs(microjoules / nanoseconds * 1000 - 60) < 0.1
    assert on_a_line(9).power == watts(60 + 170)  # too few
    assert on_a_line(40, off=200).power == watts(60 + 170 - 200)  # no line
    rested = on_a_line(10)
    rested.note(watts(65), is_nobodys=True)
    assert rested.power == watts(65)


def line(*looks: tuple[int, float, float]) -> IdlePower:
    """Times of so many seconds, each with the part in which the GPU was active and the watts that it drew."""
    idle = IdlePower()
    for seconds, active, power in looks:
        idle.note(watts(power, seconds), is_nobodys=False)
        idle.note_active(watts(power, seconds), round(active * seconds * SECOND))
    return idle


def test_times_of_any_length_on_one_line_give_the_power_at_rest_exactly() -> None:
    looks = [(10 + number, 0.5 + number / 20, 60 + 17 * number + 170) for number in range(10)]
    assert line(*looks).power == (3, 50)  # 60 W
    assert line(*looks[:9]).power == watts(230)


def test_a_gpu_that_is_always_as_active_shows_no_line() -> None:
    assert line(*[(10, 0.5, 230.0)] * 20).power == watts(230)
    assert line(*[(10, 0.0, 80.0)] * 20).power == watts(80)


def test_a_line_does_not_count_against_a_lower_power() -> None:
    idle = on_a_line(20)
    idle.note(watts(50), is_nobodys=False)
    assert idle.power == watts(50)


def test_no_power_at_rest_is_less_than_nothing() -> None:
    assert line(*[(10, 0.5 + number / 20, 10 + 20.0 * number) for number in range(10)]).power == (0, 1)


# twelve times, each 13.3 W off the line: the standard error of the power at rest is a tenth of the mean power, 298 W
@pytest.mark.parametrize(("off", "is_line"), [(13.3, True), (13.4, False)])
def test_a_line_counts_up_to_a_standard_error_of_a_tenth(off: float, is_line: bool) -> None:
    looks = [(10, active, 60 + 340 * active + sign * off) for active in (0.6, 0.8) for sign in (1, 1, 1, -1, -1, -1)]
    power = line(*looks).power
    assert power == ((3, 50) if is_line else watts(60 + 340 * 0.6 - off))


def test_old_times_lose_weight_in_all_sums_alike() -> None:
    idle = on_a_line(4_095)
    assert idle.times == 4_095
    assert idle.power == (3, 50)
    idle = on_a_line(4_096)
    assert idle.times == 2_048
    assert idle.power == (3, 50)
