"""What is kept of the memory of one GPU's devices, look by look, and which ends of containers are judged by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest

from exporter.accounts.amounts.memory_ends import MemoryEnds
from exporter.accounts.entries import Entry
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.memory_looks import DeviceMemory, MemoryAtLook
from exporter.model.devices import DeviceKey
from exporter.model.pods import ContainerEnd, Owner
from tests.support.looks import GPU, SECOND, owner

KEY = DeviceKey(uuid=GPU(0))
ENTRIES = {pod: Entry(owner(pod), "", KEY) for pod in "abc"}
END = ContainerEnd(id="containerd://1", exit_code=1, reason="Error", at_seconds=1_000)


@dataclass
class Gpu:
    """One GPU that is looked at again and again."""

    kept: MemoryEnds = field(default_factory=MemoryEnds)
    xids: dict[int, int] = field(default_factory=dict)

    def at(
        self,
        seconds: float,
        used: float | None = None,
        pods: str = "a",
        ends: Mapping[Owner, Sequence[ContainerEnd]] | None = None,
        **memory: Any,
    ) -> list[tuple[str, ContainerEnd]]:
        """Look at it, with so many of 100 MiB in use; the ends that are suspected, and whose they are.

        `memory` is more of what the look saw.
        """
        more: dict[str, Any] = {"users": {}, "failed": {}, **memory}
        holders = tuple((ENTRIES[pod], 1) for pod in pods)
        seen = MemoryAtLook(
            values={} if used is None else {KEY: DeviceMemory(used, 100.0)},
            ends=ends or {},
            **more,
        )
        gpu: Any = SimpleNamespace(
            at_ns=round(seconds * SECOND),
            memory=seen,
            holders_now=HeldGpu(KEY, 1, (Device(KEY, 1, is_sampled=True, holders=holders, part=1),)),
            state=SimpleNamespace(xids=self.xids),
        )
        self.kept.count(gpu)
        return [(of.pod, end) for of, end in seen.suspects]

    @property
    def looks(self) -> list[tuple[float, float, float]]:
        """The looks that are kept: from when to when, and what was in use."""
        return [(look.since_at_ns / SECOND, look.at_ns / SECOND, look.used_mib) for look in self.kept.looks.get("", ())]


def test_looks_that_saw_the_same_are_one() -> None:
    gpu = Gpu()
    for seconds, used in ((0, 20), (20, 20), (40, 20), (60, 30), (80, 20)):
        gpu.at(seconds, used)
    assert gpu.looks == [(0, 40, 20), (60, 60, 30), (80, 80, 20)]
    gpu.at(100, 20, "ab")
    assert gpu.looks[-2:] == [(80, 80, 20), (100, 100, 20)]


def test_of_three_looks_within_ten_seconds_the_one_between_goes() -> None:
    for used, kept in (((10, 50, 90), [10, 90]), ((50, 10, 90), [10, 90]), ((10, 90, 50), [10, 90])):
        gpu = Gpu()
        for number, amount in enumerate(used):
            gpu.at(number, amount)
        assert [amount for _, _, amount in gpu.looks] == kept


def test_looks_ten_seconds_apart_or_with_other_holders_all_stay() -> None:
    gpu = Gpu()
    for seconds, used in ((0, 10), (5, 50), (10, 90)):
        gpu.at(seconds, used)
    assert len(gpu.looks) == 3
    for first in "ab":
        gpu = Gpu()
        gpu.at(0, 10, first)
        gpu.at(1, 50, "ab".replace(first, ""))
        gpu.at(2, 90, "a")
        assert len(gpu.looks) == 3


def test_looks_are_kept_for_two_minutes() -> None:
    gpu = Gpu()
    gpu.at(0, 10)
    gpu.at(60, 20)
    gpu.at(120, None)
    assert gpu.looks == [(0, 0, 10), (60, 60, 20)]
    gpu.at(120.5, None)
    assert gpu.looks == [(60, 60, 20)]
    gpu.at(181, None)
    assert gpu.kept.looks == {}


def test_at_most_twenty_four_looks_are_kept() -> None:
    gpu = Gpu()
    for number in range(40):
        gpu.at(number * 0.1, number % 7 + number, "ab"[number % 2])
    assert [since for since, _, _ in gpu.looks] == [pytest.approx(number * 0.1) for number in range(16, 40)]


def test_memory_that_nobody_holds_or_the_page_lacks_is_not_kept() -> None:
    gpu = Gpu()
    gpu.at(0, 10, "")
    gpu.at(10, None, "a")
    assert gpu.looks == []


def filled() -> Gpu:
    gpu = Gpu()
    gpu.at(985, 20, "ab")
    gpu.at(996, 99, "ab")
    return gpu


def test_an_end_is_suspected_once() -> None:
    gpu = filled()
    assert gpu.at(1_005, 20, "b", {owner("a"): [END]}) == [("a", END)]
    assert gpu.at(1_010, 20, "b", {owner("a"): [END]}) == []
    # another end of the same container is another one
    again = replace(END, id="containerd://2")
    assert gpu.at(1_015, 20, "b", {owner("a"): [END, again]}) == [("a", again)]


def test_ends_without_an_id_are_told_apart_by_name_and_time() -> None:
    gpu = filled()
    first, later = replace(END, id=""), replace(END, id="", at_seconds=1_001)
    assert gpu.at(1_005, 20, "b", {owner("a"): [first]}) == [("a", first)]
    assert gpu.at(1_006, 20, "b", {owner("a"): [first, later]}) == [("a", later)]
    assert gpu.at(1_007, 20, "b", {owner("a"): [later], owner("b"): [later]}) == [("b", later)]


def test_an_end_of_more_than_two_minutes_ago_is_not_judged() -> None:
    for late, suspected in ((120, [("a", END)]), (121, [])):
        gpu = filled()
        gpu.at(1_000, 99, "ab")  # the last look that saw it full, which stays for two minutes
        gpu.at(1_060, 20, "ab")
        assert gpu.at(1_000 + late, 20, "b", {owner("a"): [END]}) == suspected


def test_nobody_else_than_a_holder_of_late_is_judged() -> None:
    assert filled().at(1_005, 20, "b", {owner("c"): [END]}) == []
    assert filled().at(1_005, 20, "b", {}) == []


def test_an_end_of_a_holder_without_an_account_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENTRIES["a"], "is_dropped", True)
    assert filled().at(1_005, 20, "b", {owner("a"): [END], owner("b"): [END]}) == [("b", END)]


@pytest.mark.parametrize(("before", "is_suspected"), [(60, False), (61, True)])
def test_an_xid_of_the_last_minute_explains_an_end(before: int, is_suspected: bool) -> None:
    gpu = filled()
    gpu.xids[79] = (1_000 - before) * SECOND
    assert gpu.at(1_005, 20, "b", {owner("a"): [END]}) == ([("a", END)] if is_suspected else [])


def test_the_last_sixty_four_ends_are_remembered() -> None:
    gpu = filled()
    ends = [replace(END, id=f"containerd://{number}") for number in range(65)]
    assert len(gpu.at(1_005, 20, "b", {owner("a"): ends[:64]})) == 64
    assert gpu.at(1_006, 20, "b", {owner("a"): ends}) == [("a", ends[64])]
    assert gpu.at(1_007, 20, "b", {owner("a"): ends[1:]}) == []
    assert gpu.at(1_008, 20, "b", {owner("a"): ends[:1]}) == [("a", ends[0])]


def test_failed_allocations_and_users_of_the_gpu_are_judged() -> None:
    gpu = Gpu()
    gpu.at(996, 70)
    assert gpu.at(1_005, 20, "", {owner("a"): [END]}, failed={(owner("a"), KEY.uuid): 1}) == [("a", END)]
    gpu = Gpu()
    gpu.at(996, 89, "ab", users={KEY: [(owner("b"), 85.0)]})
    assert gpu.at(1_005, 20, "b", {owner("a"): [END]}) == [("a", END)]
