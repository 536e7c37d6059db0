"""Suspected hangs at their limits: how much, how long and how often, with the signs of devices given directly."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from exporter.accounts.hang_signs import DeviceSigns
from exporter.accounts.power_levels import Levels, PowerLevels
from exporter.accounts.watched_jobs import MOST_BLIND_NS, Job, JobDevice, WatchedJobs, jobs_of, waits
from exporter.model.devices import DeviceKey
from exporter.model.hangs import SuspectedHang
from exporter.model.pods import Owner
from tests.support.looks import SECOND

EVERY = 20 * SECOND
START = 1_000 * SECOND
LEVEL = PowerLevels(idle=100.0, busy=200.0)

WAITS = DeviceSigns(gr_engine=1.0, power=110.0, tensor=0.0, dram=0.0, pipes=0.0)
WORKS = DeviceSigns(gr_engine=0.8, power=190.0, tensor=0.1, dram=0.2, pipes=0.1, pcie=0.0)
STARVES = DeviceSigns(gr_engine=0.2, power=120.0, tensor=0.0, dram=0.0, pipes=0.0, pcie=1e9)
RESTS = replace(STARVES, gr_engine=0.0)
NEITHER = replace(STARVES, gr_engine=0.4)


def device(number: int = 0, *, pod: str = "job", is_whole: bool = True, is_mig: bool = False) -> JobDevice:
    owner = Owner(namespace="ml", pod=pod, container=f"main-{number}")
    job = Job("ml", pod, f"{pod}-0", "StatefulSet")
    return JobDevice(DeviceKey(uuid=f"GPU-{number}"), owner, job, "H100", is_whole=is_whole, is_mig=is_mig)


class Pulse:
    """Looks at jobs, 20 s apart, on pages whose power is another at each look unless it is frozen."""

    def __init__(self, *held: JobDevice, levels: Levels | None = None, most_blind_ns: int = MOST_BLIND_NS) -> None:
        self.held = held or (device(),)
        self.levels = levels or {}
        self.most_blind_ns = most_blind_ns
        self.jobs = WatchedJobs()
        self.at_ns = START - EVERY
        self.waver = 0

    def sees(self, number: int, *devices: DeviceSigns | None, powers: int = 3, after: int = EVERY) -> "Pulse":
        """So many looks, the first one `after` ns, with these signs of each device; None: the page lacks it."""
        for look in range(number):
            self.at_ns += EVERY if look else after
            self.waver += 1
            signs = {
                held.key: replace(of_device, power=of_device.power and of_device.power + self.waver % powers)
                for held, of_device in zip(self.held, devices, strict=True)
                if of_device is not None
            }
            self.suspected = self.look(signs)
        return self

    def look(self, signs: Mapping[DeviceKey, DeviceSigns]) -> Iterable[SuspectedHang]:
        return self.jobs.look(jobs_of(self.held), signs, self.levels, self.at_ns, self.most_blind_ns)

    @property
    def reasons(self) -> list[str]:
        return [hang.reason for hang in self.suspected]


@pytest.mark.parametrize(
    ("change", "is_waiting"),
    [
        ({}, True),
        ({"gr_engine": 0.95}, True),
        ({"gr_engine": 0.94}, False),
        ({"gr_engine": None}, False),
        ({"power": None}, False),
        ({"dram": 0.02}, True),
        ({"dram": 0.021}, False),
        ({"dram": None}, False),
        ({"tensor": 0.02}, True),
        ({"tensor": 0.021}, False),
        ({"pipes": 0.03}, True),
        ({"pipes": 0.031}, False),
        ({"pcie": 1e9}, True),
        ({"pcie": 1.1e9}, False),
        ({"nvlink": 1e9}, True),
        ({"nvlink": 1.1e9}, False),
        ({"power": 165.0}, True),
        ({"power": 166.0}, False),
        # the page lacks a field of the three pipes: only a power near idle tells
        ({"pipes": None, "power": 125.0}, True),
        ({"pipes": None, "power": 126.0}, False),
        ({"tensor": None, "power": 125.0}, True),
        ({"tensor": None, "power": 126.0}, False),
        ({"gr_engine": None, "utilization": 1.0, "power": 125.0}, True),
        ({"gr_engine": None, "utilization": 1.0, "power": 126.0}, False),
        ({"dram": None, "copies": 0.0, "power": 125.0}, True),
        ({"dram": None, "copies": 0.0, "power": 126.0}, False),
    ],
)
def test_what_a_kernel_that_waits_looks_like(change: dict[str, float | None], is_waiting: bool) -> None:
    assert waits(replace(WAITS, **change), LEVEL) is is_waiting


def test_without_learned_powers_only_pipes_at_rest_tell_that_it_waits() -> None:
    assert waits(replace(WAITS, power=900.0), None)
    assert not waits(replace(WAITS, pipes=None), None)


def test_the_links_of_a_gpu_say_nothing_of_its_instances() -> None:
    assert waits(replace(WAITS, pcie=5e9, nvlink=5e9), None, is_mig=True)
    assert not waits(replace(WAITS, pcie=5e9), None)


def test_a_kernel_that_waits_is_suspected_after_exactly_ten_minutes() -> None:
    assert Pulse().sees(30, WAITS).reasons == []
    (hang,) = Pulse().sees(31, WAITS).suspected
    assert (hang.reason, hang.since_seconds) == ("waiting_kernel", START / SECOND)
    assert (hang.workload_name, hang.workload_kind) == ("job-0", "StatefulSet")
    assert hang.message == "100% busy for 10 min at 111 W, while tensor cores, other pipes and memory rest"


def test_the_words_have_the_mean_of_all_devices_and_what_was_learned() -> None:
    pulse = Pulse(device(0), device(1), levels={"H100": LEVEL})
    (hang,) = pulse.sees(33, replace(WAITS, power=120.0), replace(WAITS, gr_engine=0.96, power=150.0)).suspected
    assert hang.message == "98% busy for 10 min at 135 W; the model idles at 100 W and works at 200 W"
    assert hang.devices == {DeviceKey(uuid="GPU-0"), DeviceKey(uuid="GPU-1")}
    assert [owner.container for owner in hang.holders] == ["main-0", "main-1"]


def test_the_words_of_an_instance_name_no_power() -> None:
    (hang,) = Pulse(device(is_mig=True), levels={"H100": LEVEL}).sees(31, replace(WAITS, power=900.0)).suspected
    assert hang.message == "100% busy for 10 min, while tensor cores, other pipes and memory rest"


def test_a_page_must_show_three_different_powers_meanwhile() -> None:
    assert Pulse().sees(60, WAITS, powers=2).reasons == []
    assert Pulse().sees(60, WAITS, powers=3).reasons == ["waiting_kernel"]
    # what moved before a break does not count for the time after it
    assert Pulse().sees(9, WAITS).sees(1, WORKS).sees(60, WAITS, powers=1).reasons == []
    pulse = Pulse().sees(9, WAITS, powers=2).sees(1, WORKS)
    assert pulse.sees(60, replace(WAITS, power=115.0), powers=1).reasons == []


def test_a_break_of_one_look_begins_the_ten_minutes_anew() -> None:
    assert Pulse().sees(30, WAITS).sees(1, WORKS).sees(30, WAITS).reasons == []
    assert Pulse().sees(30, WAITS).sees(1, WORKS).sees(31, WAITS).reasons == ["waiting_kernel"]


@pytest.mark.parametrize(("late", "reasons"), [(60, ["waiting_kernel"]), (61, [])])
def test_a_look_that_is_later_than_a_minute_breaks_off(late: int, reasons: list[str]) -> None:
    assert Pulse().sees(20, WAITS).sees(12, WAITS, after=late * SECOND).reasons == reasons
    assert Pulse().sees(40, WAITS).sees(1, WAITS, after=late * SECOND).reasons == reasons
    # what the page lacks then stays suspected for as long
    assert Pulse().sees(40, WAITS).sees(1, None, after=late * SECOND).reasons == reasons


@pytest.mark.parametrize(("late", "reasons"), [(60, ["waiting_for_data"]), (61, [])])
def test_a_late_look_breaks_off_work_and_starving_too(late: int, reasons: list[str]) -> None:
    at_work = Pulse().sees(31, WORKS)
    assert at_work.sees(31, STARVES, after=late * SECOND).reasons == reasons
    at_work = Pulse().sees(31, WORKS).sees(15, STARVES)
    assert at_work.sees(16, STARVES, after=late * SECOND).reasons == reasons


def test_how_late_a_look_may_be_is_a_setting() -> None:
    for most, reasons in ((100, ["waiting_kernel"]), (99, [])):
        pulse = Pulse(most_blind_ns=most * SECOND).sees(40, WAITS)
        assert pulse.sees(1, WAITS, after=100 * SECOND).reasons == reasons


def test_a_job_starves_after_ten_minutes_of_work_for_ten_minutes() -> None:
    assert Pulse().sees(30, WORKS).sees(60, STARVES).reasons == []
    assert Pulse().sees(31, WORKS).sees(30, STARVES).reasons == []
    assert Pulse().sees(31, WORKS).sees(31, STARVES).reasons == ["waiting_for_data"]
    assert Pulse().sees(1, WORKS).sees(30, WORKS, after=EVERY - 1).sees(31, STARVES).reasons == []
    # work before a break of it counts too, and one look at work ends what starved
    assert Pulse().sees(20, WORKS).sees(2, NEITHER).sees(11, WORKS).sees(31, STARVES).reasons == ["waiting_for_data"]
    assert Pulse().sees(31, WORKS).sees(30, STARVES).sees(1, WORKS).sees(30, STARVES).reasons == []


@pytest.mark.parametrize(
    ("change", "is_work"),
    [
        ({}, True),
        ({"tensor": 0.09, "dram": 0.0}, False),
        ({"dram": 0.21}, False),
        ({"gr_engine": 0.5}, True),
        ({"gr_engine": 0.49}, False),
        ({"gr_engine": None}, False),
        ({"tensor": None}, False),
        ({"dram": None}, False),
    ],
)
def test_what_the_work_of_a_training_looks_like(change: dict[str, float | None], is_work: bool) -> None:
    starves = replace(STARVES, gr_engine=0.1)
    pulse = Pulse().sees(31, replace(WORKS, **change)).sees(31, starves)
    assert pulse.reasons == (["waiting_for_data"] if is_work else [])


@pytest.mark.parametrize(
    ("change", "is_starving"),
    [
        ({}, True),
        ({"gr_engine": 0.21}, False),
        ({"gr_engine": None, "utilization": 0.1}, False),
        ({"pcie": 1.1e9}, False),
        ({"pcie": None}, False),
    ],
)
def test_what_starving_looks_like(change: dict[str, float | None], is_starving: bool) -> None:
    pulse = Pulse().sees(31, WORKS).sees(31, replace(STARVES, **change))
    assert pulse.reasons == (["waiting_for_data"] if is_starving else [])


def test_starving_begins_within_a_minute_of_the_last_work() -> None:
    assert Pulse().sees(31, WORKS).sees(2, NEITHER).sees(31, STARVES).reasons == ["waiting_for_data"]
    assert Pulse().sees(31, WORKS).sees(3, NEITHER).sees(31, STARVES).reasons == []


def test_who_starves_works_in_a_burst_at_least_every_two_minutes() -> None:
    for rests, burst, reasons in (
        (6, 0.005, ["waiting_for_data"]),
        (7, 0.005, []),
        (6, 0.0049, []),
    ):
        pulse = Pulse().sees(31, WORKS).sees(1, STARVES)
        for _ in range(6):
            pulse.sees(rests, RESTS).sees(1, replace(STARVES, gr_engine=burst))
        assert pulse.reasons == reasons


def test_every_device_must_work_and_starve() -> None:
    little = replace(STARVES, gr_engine=0.1)
    pulse = Pulse(device(0), device(1)).sees(31, WORKS, NEITHER).sees(31, little, little)
    assert pulse.reasons == []
    pulse = Pulse(device(0), device(1)).sees(31, WORKS, WORKS).sees(31, little, NEITHER)
    assert pulse.reasons == []


def test_a_device_whose_power_is_not_known_does_not_starve() -> None:
    pulse = Pulse(device(0), device(1)).sees(31, WORKS, WORKS).sees(31, STARVES, replace(STARVES, power=None))
    assert pulse.reasons == []


def test_every_device_must_have_its_burst() -> None:
    pulse = Pulse(device(0), device(1)).sees(31, WORKS, WORKS).sees(31, STARVES, RESTS)
    assert pulse.reasons == []
    pulse = Pulse(device(0), device(1)).sees(31, WORKS, WORKS).sees(31, STARVES, STARVES)
    assert pulse.reasons == ["waiting_for_data"]


def test_the_words_say_how_active_the_job_is_and_usually_was() -> None:
    pulse = Pulse().sees(30, replace(WORKS, gr_engine=1.0)).sees(2, replace(WORKS, gr_engine=0.6))
    (hang,) = pulse.sees(33, replace(STARVES, gr_engine=0.04)).suspected
    assert hang.message == "4% busy, in bursts, for 10 min after work at 96%: it seems to wait for data"
    (hang,) = pulse.sees(1, RESTS).suspected
    assert hang.message.startswith("0% busy, in bursts, for 11 min")
    assert hang.since_seconds == (START + 32 * EVERY) / SECOND


def test_who_shares_a_device_is_not_judged() -> None:
    assert Pulse(device(0), device(1, is_whole=False)).sees(60, WAITS, WAITS).reasons == []


def test_a_job_begins_anew_with_other_devices_or_after_it_held_none() -> None:
    for held in ((), (device(1),)):
        pulse = Pulse().sees(30, WAITS)
        pulse.held = held
        pulse.sees(1, *(WAITS for _ in held))
        pulse.held = (device(),)
        assert pulse.sees(30, WAITS).reasons == []
        assert pulse.sees(1, WAITS).reasons == ["waiting_kernel"]


def test_suspicions_come_in_the_order_of_the_holders() -> None:
    pulse = Pulse(device(0, pod="z"), device(1, pod="a")).sees(31, WAITS, WAITS)
    assert [hang.workload_name for hang in pulse.suspected] == ["a-0", "z-0"]
