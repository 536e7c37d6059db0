"""Whether a holder was idle, by the device's mean activity over a time in which others may have held it, too."""

from types import SimpleNamespace
from typing import Any

import pytest

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import Interval
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.idleness import verdicts
from exporter.accounts.stretches import Stretch
from exporter.model.devices import DeviceKey
from tests.support.looks import SECOND, owner

KEY = DeviceKey(uuid="GPU-1")
ENTRIES = {pod: Entry(owner(pod), "", KEY) for pod in "ab"}
LEAST = 50_000  # millionths: a holder that is active for less than 5 % of its time is idle


def held(pods: str) -> HeldGpu:
    return HeldGpu(KEY, 1, (Device(KEY, 1, is_sampled=True, holders=tuple((ENTRIES[pod], 1) for pod in pods), part=1),))


@pytest.mark.parametrize(
    ("before", "window", "now", "activity", "idle"),
    [
        # 30 s of one holder alone
        ("a", "a", "a", 49_999, {"a": True}),
        ("a", "a", "a", 50_000, {"a": False}),
        (None, "a", "a", 50_000, {"a": False}),
        # whoever held it just before or just after may have been active: for 10 s, the time between two looks
        ("b", "a", "a", 49_999, {"a": True}),
        ("b", "a", "a", 50_000, {"a": None}),
        ("b", "a", "a", 383_333, {"a": None}),
        ("b", "a", "a", 383_334, {"a": False}),
        ("a", "a", "b", 50_000, {"a": None}),
        ("a", "a", "b", 383_334, {"a": False}),
        ("b", "a", "b", 383_334, {"a": None}),
        ("b", "a", "b", 716_667, {"a": False}),
        # two in turn, 30 s each: the other one may have had all of its own time
        ("a", "ab", "b", 24_999, {"a": True, "b": True}),
        ("a", "ab", "b", 25_000, {"a": None, "b": None}),
        ("a", "ab", "b", 1_000_000, {"a": False, "b": False}),
    ],
)
def test_a_holders_idleness_follows_from_the_devices_mean_activity(
    before: str | None, window: str, now: str, activity: int, idle: dict[str, bool | None]
) -> None:
    gpu: Any = SimpleNamespace(
        interval=Interval(10 * SECOND, is_gap=False),
        state=SimpleNamespace(holders_before=None if before is None else held(before)),
        holders_now=held(now),
    )
    stretches = [Stretch(held(pod), 30 * SECOND) for pod in window]
    decided = verdicts(gpu, stretches, {"": activity}, LEAST)
    assert {entry.owner.pod: is_idle for (_, entry), is_idle in decided.items() if entry.owner} == idle


def test_the_holders_of_a_shared_device_are_all_idle_or_all_unknown() -> None:
    gpu: Any = SimpleNamespace(interval=None, state=SimpleNamespace(holders_before=held("ab")), holders_now=held("ab"))
    for activity, is_idle in ((49_999, True), (50_000, None), (1_000_000, None)):
        decided = verdicts(gpu, [Stretch(held("ab"), 30 * SECOND)], {"": activity}, LEAST)
        assert [*decided.values()] == [is_idle, is_idle]
