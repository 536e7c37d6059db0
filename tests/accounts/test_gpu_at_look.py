"""One GPU at one look: who gets a time of it, which amounts start, and what is seen of the time since the last look."""

from dataclasses import dataclass, field

import pytest

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import GpuAtLook, GpuState, Interval
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import CountersAtLook, Stretch
from exporter.model.devices import DeviceKey
from tests.support.looks import owner

KEY = DeviceKey(uuid="GPU-1")


@dataclass
class Node:
    """The entries of pods that hold parts of a GPU, and nobody's entries of its devices."""

    pods: dict[str, Entry] = field(default_factory=lambda: {pod: Entry(owner(pod), "", KEY) for pod in "ab"})
    nobodys: dict[str, Entry] = field(default_factory=dict)

    def nobody(self, device: DeviceKey) -> Entry:
        return self.nobodys.setdefault(device.instance, Entry(None, "", device))

    def held(self, whole: int, **parts: int) -> HeldGpu:
        """Instances 1 and 2, if there are two holders; each holds one."""
        devices = [
            Device(
                DeviceKey(uuid=KEY.uuid, instance=number),
                1,
                is_sampled=True,
                holders=((self.pods[pod], part),),
                part=part,
            )
            for number, (pod, part) in zip("12", parts.items(), strict=False)
        ]
        return HeldGpu(KEY, whole, devices or (Device(KEY, 1, is_sampled=True, holders=(), part=whole),))

    def at_look(self, held: HeldGpu, interval: Interval | None = None, *, is_away: bool = False) -> GpuAtLook:
        """Look 5, at the moment 50."""
        return GpuAtLook(
            look=5,
            at_ns=50,
            keep_ns=1000,
            idle_below=0.05,
            interval=interval,
            holders_now=held,
            samples=GpuSamples(),
            state=GpuState(),
            idle_power=IdlePower(),
            nobody=self.nobody,
            kernels={"1": [1]},
            is_away=is_away,
        )

    def amounts(self) -> dict[str, dict[str, int]]:
        """By pod, and by the GPU_I_ID of nobody's entries."""
        entries = {**self.pods, **self.nobodys}
        return {name: entry.amounts for name, entry in entries.items() if entry.amounts}


def test_holders_get_their_parts_of_a_time_and_nobody_gets_the_rest() -> None:
    node = Node()
    held = node.held(4, a=1, b=2)
    gpu = node.at_look(held)
    gpu.give(held, "x", 8)
    gpu.give(held, "x", 4)
    assert node.amounts() == {"a": {"x": 3}, "b": {"x": 6}, "": {"x": 3}}
    gpu.give(held, "y", 8, "label")
    assert node.pods["b"].by_label == {"y": {"label": 4}}
    assert node.nobodys[""].by_label == {"y": {"label": 2}}


def test_the_part_of_a_dropped_entry_is_nobodys() -> None:
    node = Node()
    node.pods["a"].is_dropped = True
    held = node.held(4, a=1, b=2)
    node.at_look(held).give(held, "x", 8)
    assert node.amounts() == {"b": {"x": 4}, "": {"x": 4}}


def test_no_time_is_given_to_nobody_and_no_rest_either() -> None:
    node = Node()
    held = node.held(3, a=1, b=2)
    node.at_look(held).give(held, "x", 0)
    assert node.amounts() == {}
    node.at_look(held).give(held, "x", 3)
    assert node.amounts() == {"a": {"x": 1}, "b": {"x": 2}}


def test_amounts_start_for_all_devices_or_for_some_of_them() -> None:
    node = Node()
    gpu = node.at_look(node.held(3, a=1, b=2))
    gpu.start(("x", ""), ("y", "label"), instances={"2"})
    gpu.start_nobodys("z", {"1"})
    assert node.amounts() == {"b": {"x": 0}, "1": {"z": 0}}
    assert (node.pods["a"].by_label, node.pods["b"].by_label) == ({}, {"y": {"label": 0}})
    gpu.start(("x", ""))
    gpu.start_nobodys("z")
    assert node.amounts() == {"a": {"x": 0}, "b": {"x": 0}, "1": {"z": 0}, "2": {"z": 0}}


SEEN, GAP = Interval(10, is_gap=False), Interval(10, is_gap=True)


@pytest.mark.parametrize(
    ("look", "interval", "was_away", "is_away", "is_gap", "is_blind"),
    [
        (4, SEEN, False, False, False, False),
        (4, SEEN, True, False, False, True),
        (4, SEEN, False, True, False, True),
        (3, SEEN, False, False, True, False),
        (4, GAP, False, False, True, False),
        (4, None, False, False, True, False),
    ],
)
def test_the_time_since_the_last_look_at_counters(
    look: int, interval: Interval | None, was_away: bool, is_away: bool, is_gap: bool, is_blind: bool
) -> None:
    node = Node()
    before, now = node.held(3, a=1, b=2), node.held(3, a=1)
    node.pods["b"].gone_at_ns = 45
    counters = CountersAtLook(before, look, 40, {})
    counters.is_away = was_away
    stretch = node.at_look(now, interval, is_away=is_away).reach(counters)
    assert (stretch.ns, stretch.is_gap, stretch.is_blind) == (10, is_gap, is_blind)
    assert (counters.held, counters.look, counters.at_ns, counters.is_away) == (now, 5, 50, is_away)
    # in a gap nobody saw when the container left
    assert [entry.is_dropped for _, entry in stretch.held.holders] == [False, is_gap]
    assert stretch.kernels == ({} if is_gap else {"1": [1]})
    assert len(counters.stretches) == 1


def test_a_clock_that_steps_back_gives_no_time() -> None:
    node = Node()
    held = node.held(1, a=1)
    assert node.at_look(held, SEEN).reach(CountersAtLook(held, 4, 60, {})).ns == 0


def test_the_edges_of_a_period_are_its_other_holders() -> None:
    node = Node()
    first, second, third = node.held(1, a=1), node.held(1, b=1), node.held(1)
    gpu = node.at_look(third)
    window = [Stretch(first, 1), Stretch(second, 1)]
    assert gpu.edges(window) == (None, third)
    gpu.state.holders_before = third
    assert gpu.edges(window) == (third, third)
    assert gpu.edges(window, is_whole=False) == (None, third)
    gpu.state.holders_before = first
    assert gpu.edges(window) == (None, third)
    assert gpu.edges([Stretch(second, 1), Stretch(third, 1)]) == (first, None)
    node.pods["a"].is_dropped = True
    assert gpu.edges([Stretch(second, 1)]) == (None, third)


def test_steady_holders_are_described_by_the_samples_of_before() -> None:
    node = Node()
    steady, other = node.held(1, a=1), node.held(1, b=1)
    gpu = node.at_look(other)
    gpu.samples.rows["power"] = {"": 1}
    gpu.state.samples.rows["power"] = {"": 2}
    gpu.state.steady = steady
    assert gpu.samples_of(Stretch(steady, 1)) is gpu.state.samples
    assert gpu.samples_of(Stretch(other, 1)) is gpu.samples
    for unseen in (Stretch(steady, 1, is_gap=True), Stretch(other, 1, is_blind=True)):
        assert gpu.samples_of(unseen).rows == {}


def test_a_page_that_is_away_leaves_the_time_to_the_next_one() -> None:
    node = Node()
    held = node.held(1, a=1)
    gpu = node.at_look(held, SEEN, is_away=True)
    gpu.state.page = CountersAtLook(held, 4, 40, {})
    gpu.count()
    assert [(stretch.ns, stretch.is_blind) for stretch in gpu.state.page.stretches] == [(10, True)]
    assert gpu.state.look == -1
