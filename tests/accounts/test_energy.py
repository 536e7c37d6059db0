"""Energy where holders change: when it begins, and whose it is that a counter grew."""

import pytest

from tests.support.looks import Looks, energy, joules, kernels, row, whole

ACTIVE, POWER = "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_POWER_USAGE"
A, B = {"a": whole(0)}, {"b": whole(0)}


def of_pods(looks: Looks) -> dict[str, float | None]:
    """Joules by pod ("" for nobody)."""
    return {account.owner.pod if account.owner else "": joules(account) for account in looks.ledger.accounts.rows}


@pytest.mark.parametrize("page", [energy("5"), row(POWER, "100"), energy("5") + row(POWER, "100")])
def test_it_begins_at_0_for_holders_and_nobody(page: str) -> None:
    looks = Looks().at(0, page, A)
    assert of_pods(looks) == {"a": 0, "": 0}


def test_who_comes_while_the_page_lacks_the_counter_begins_at_0_too() -> None:
    looks = Looks().at(0, energy("5") + row(ACTIVE, "0"), A).at(10, row(ACTIVE, "0"), B)
    assert of_pods(looks)["b"] == 0


def test_a_page_without_energy_and_power_has_no_row() -> None:
    assert of_pods(Looks().at(0, row(ACTIVE, "0"), A).at(10, row(ACTIVE, "0"), B)) == {"a": None, "b": None, "": None}


def test_looks_at_one_moment_give_the_growth_to_the_last_holder() -> None:
    assert of_pods(Looks().at(0, energy("0"), A).at(0, energy("1000"), B)) == {"a": 0, "b": 1, "": 0}


def test_power_of_a_moment_is_no_energy() -> None:
    looks = Looks().at(0, row(POWER, "100"), A).at(0, row(POWER, "100"), A).at(10, row(POWER, "0"), A)
    assert of_pods(looks) == {"a": 1_000, "": 0}


def rested() -> Looks:
    """A GPU that drew 10 W while nobody held it."""
    looks = Looks()
    for number in range(3):
        looks.at(10 * number, energy(f"{100_000 * number}") + row(ACTIVE, "0"))
    return looks


def test_after_a_rest_what_is_drawn_beyond_it_is_the_holders() -> None:
    looks = rested().at(30, energy("300000") + row(ACTIVE, "0"), A)
    looks.at(40, energy("300000") + row(ACTIVE, "0"))
    looks.at(50, energy("1500000") + row(ACTIVE, "0.25"))
    assert of_pods(looks) == {"a": 1_100, "": 400}


def test_no_rest_is_more_than_its_part_of_the_time() -> None:
    looks = rested().at(30, energy("300000") + row(ACTIVE, "0"), A)
    looks.at(40, energy("300000") + row(ACTIVE, "0")).at(50, energy("400000") + row(ACTIVE, "0.25"))
    assert of_pods(looks) == {"a": 50, "": 350}


def test_a_counter_that_started_again_teaches_nothing_of_the_rest() -> None:
    looks = Looks()
    for number, value in enumerate(("900000", "1000000", "1000")):
        looks.at(10 * number, energy(value))
    (power,) = looks.ledger.idle_powers.values()
    assert power.lowest is None
    looks.at(30, energy("101000"))
    assert power.lowest == (100_000_000, 10 * 10**9)


def test_nor_does_the_counter_of_one_instance_that_started_again() -> None:
    looks = Looks()
    for number, values in enumerate((("900000", "100"), ("1000000", "200"), ("1100000", "50"))):
        page = "".join(energy(value, instance=instance) for value, instance in zip(values, "12", strict=True))
        looks.at(10 * number, page)
    (power,) = looks.ledger.idle_powers.values()
    assert power.lowest is None


def test_the_power_on_the_row_of_one_instance_is_the_gpus() -> None:
    cut = {f"MIG-{instance}": (0, instance, "1g.10gb") for instance in "12"}
    page = row(POWER, "100", instance="1", profile="1g.10gb")
    page += "".join(row(ACTIVE, "0.5", instance=instance, profile="1g.10gb") for instance in "12")
    held = {pod: [("r", f"MIG-{instance}")] for pod, instance in (("a", "1"), ("b", "2"))}
    assert of_pods(Looks(mig=cut).at(0, page, held).at(10, page, held)) == {"a": 500, "b": 500, "": 0}


def test_only_a_time_without_any_holder_is_a_rest() -> None:
    looks = Looks()
    for number, held in enumerate(({}, {}, {}, A, {})):
        looks.at(10 * number, energy(f"{100_000 * number}"), held)
        (power,) = looks.ledger.idle_powers.values() or (None,)
        assert (power is not None and power.has_rested) is (number in (2, 3, 4))


def test_kernels_of_a_process_of_nobody_take_their_part_of_the_growth() -> None:
    held = {"a": whole(0)}
    looks = Looks().at(0, energy("0"), held, sm_ns=kernels({"a": 0, "": 0}))
    looks.at(10, energy("8000"), held, sm_ns=kernels({"a": 3_000_000_000, "": 1_000_000_000}))
    assert of_pods(looks) == {"a": 6, "": 2}


def test_only_times_in_which_holders_change_show_what_activity_costs() -> None:
    for later, times in (((A, A, A), 0), ((A, A, B), 1), ((B, A, B), 2)):
        looks = Looks()
        for number, held in enumerate((A, *later)):
            looks.at(10 * number, energy(f"{1_000_000 * number}") + row(ACTIVE, "0.25"), held)
        (power,) = looks.ledger.idle_powers.values()
        length, active = 10 * 10**9, 10 * 10**9 // 4
        assert (power.times, power.tt, power.ta) == (times, times * length**2, times * length * active)


def test_the_activity_of_instances_counts_by_their_slices() -> None:
    cut = {"MIG-1": (0, "1", "3g.40gb"), "MIG-2": (0, "2", "4g.40gb")}

    def page(number: int) -> str:
        return "".join(
            energy(f"{1_000_000 * number}", instance=instance, profile=profile)
            + row(ACTIVE, active, instance=instance, profile=profile)
            for instance, profile, active in (("1", "3g.40gb", "0.5"), ("2", "4g.40gb", "0"))
        )

    looks = Looks(mig=cut)
    for number, pod in enumerate("abab"):
        looks.at(10 * number, page(number), {pod: [("r", "MIG-1")]})
    (power,) = looks.ledger.idle_powers.values()
    length = 10 * 10**9
    assert (power.times, power.ta) == (2, 2 * length * (length * 3 // 14))


def test_a_page_without_activity_does_not_show_what_it_costs() -> None:
    looks = Looks()
    for number, held in enumerate((A, B, A, B)):
        looks.at(10 * number, energy(f"{1_000_000 * number}"), held)
    (power,) = looks.ledger.idle_powers.values()
    assert (power.times, power.lowest) == (0, (10**9, 10 * 10**9))


@pytest.mark.parametrize(("blind", "times"), [(1, 1), (2, 0)])
def test_nor_does_a_time_in_which_the_page_was_away(blind: int, times: int) -> None:
    looks = Looks()
    for number, held in enumerate((A, A, B, A)):
        page = energy(f"{1_000_000 * number}") + row(ACTIVE, "0.25")
        looks.at(10 * number, None if number == blind else page, held)
    (power,) = looks.ledger.idle_powers.values()
    assert power.times == times


def test_nor_does_a_time_in_which_the_page_was_away_at_its_end() -> None:
    looks = Looks().at(0, energy("0") + row(ACTIVE, "0.25"), A).at(10, energy("1000000") + row(ACTIVE, "0.25"), A)
    looks.at(20, energy("1000000") + row(ACTIVE, "0.25"), B).at(30, None, A)
    looks.at(40, energy("4000000") + row(ACTIVE, "0.25"), A)
    (power,) = looks.ledger.idle_powers.values()
    assert power.times == 0


def test_nor_does_a_page_without_the_instances_that_are_held() -> None:
    looks = Looks(mig={"MIG-1": (0, "1", "3g.40gb")})
    for number, pod in enumerate("abab"):
        looks.at(10 * number, energy(f"{1_000_000 * number}") + row(ACTIVE, "0.25"), {pod: [("r", "MIG-1")]})
    (power,) = looks.ledger.idle_powers.values()
    assert power.times == 0


def test_without_activity_the_rest_and_held_time_divide_energy() -> None:
    looks = Looks()
    for number in range(3):
        looks.at(10 * number, energy(f"{100_000 * number}"))
    looks.at(30, energy("300000"), A).at(40, energy("300000"), B).at(60, energy("300000"))
    looks.at(70, energy("3700000"))
    assert of_pods(looks) == {"a": 1_100, "b": 2_200, "": 400}


def test_growth_within_a_moment_is_equally_the_holders_before_and_after() -> None:
    looks = rested().at(30, energy("300000"), A).at(30, energy("301000"), B)
    assert of_pods(looks) == {"a": 0.5, "b": 0.5, "": 300}
