"""Random histories of a node, beside an account of them that is kept plainly, in fractions.

dcgm-exporter reads the GPUs in a rhythm of its own, NVML is read in another one, and the pulse looks in a third.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.accounts.kernels import KernelTimes
from exporter.accounts.ledger import Rules
from exporter.accounts.state_bytes import restore
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from tests.accounts.plain_account import INTERVAL, Look, Place, plain, plain_time, together
from tests.support.ledgers import dump
from tests.support.looks import GPU, SECOND, Looks, kernels, row

SLICES = 7
SHARED = "nvidia.com/gpu.shared"
GPUS = (0, 1)
PODS = ("a", "b", "c")
PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb"}
# every way to cut a GPU: an instance's id and slices
INSTANCES = {
    f"MIG-{gpu}-{number}-{of}": (gpu, f"{number}{of}", of) for gpu in GPUS for number in "12" for of in PROFILES
}
RULES = Rules(interval_ns=INTERVAL * SECOND, keep_ns=10**18)


@dataclass
class World:
    """Two GPUs, whole, shared or cut, and who holds what of them.

    `read` is what dcgm-exporter read of each GPU last: its counter (None where it could not) and how active each device
    is. It reads every `rhythm` seconds. `kernels` is for how long kernels ran, by GPU and pod, and `measured` the same
    as it was read last. If the world `is_calm`, all GPUs are shared, looks are on time, and NVML knows almost all.
    """

    random: Random
    rhythm: int
    is_calm: bool = False
    at: int = 0
    next_read: int = 0
    counters: dict[int, int] = field(default_factory=lambda: {0: 5_000, 1: 123_456_789})
    cut: dict[int, dict[str, str]] = field(default_factory=lambda: {0: {}, 1: {}})  # GPU → GPU_I_ID → MIG UUID
    ids: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # pod → resource and device id
    held: dict[Place, dict[str, Fraction]] = field(default_factory=dict)
    read: dict[int, tuple[int | None, dict[str, str]]] = field(default_factory=dict)
    kernels: dict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    measured: dict[Place, dict[str, int]] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)
    failed: str = ""
    sampled: frozenset[Place] = frozenset()

    def move(self) -> None:
        """Time passes, counters grow or start again, GPUs are cut anew, pods come and go."""
        random = self.random
        self.at += random.choice((7, 10, 10, 13) if self.is_calm else (1, 7, 10, 10, 10, 20, 21, 45))
        self.failed = random.choice((*[""] * (35 if self.is_calm else 5), "kubelet", "page"))
        is_due = self.at >= self.next_read
        if is_due:
            self.next_read = self.at + self.rhythm
        is_cut_anew = False
        for gpu in GPUS:
            if not random.randrange(12):
                self.counters[gpu] = random.choice((0, self.counters[gpu] // 3))
            else:
                self.counters[gpu] += random.choice((0, 1, 999, 3_000_001))
            must_read = gpu not in self.read or (is_due and random.randrange(8))
            # what a look does not see that counts, a page that is away afterwards would describe wrongly
            if not self.failed and not self.is_calm and not random.randrange(6):
                self.cut[gpu], must_read = {}, True
                is_cut_anew = True
                for number in random.choice(((), (), "1", "12")):
                    uuid = f"MIG-{gpu}-{number}-{random.choice((1, 2, 3))}"
                    self.cut[gpu][INSTANCES[uuid][1]] = uuid
            if must_read:
                says = random.choice((True, True, True, True, False))
                active = {instance: random.choice(("0", "0", "0.25", "1")) for instance in self.cut[gpu] or ("",)}
                self.read[gpu] = self.counters[gpu] if says else None, active
            for pod in (*self.held.get((gpu, ""), {}), ""):
                self.kernels[gpu][pod] += random.choice((0, 0, 1, 300_000_000, 6_123_456_789))
        if self.is_calm or random.randrange(3):
            self.measure()
        if is_cut_anew or random.randrange(3):
            self.assign()

    def measure(self) -> None:
        """NVML is read; now and then nothing is known of a device, or of a pod."""
        self.measured = {}
        for gpu in GPUS:
            is_sure = self.is_calm and self.random.randrange(12)
            known = {pod: self.kernels[gpu][pod] for pod in (*PODS, "") if is_sure or self.random.randrange(12)}
            if is_sure or self.random.randrange(8):
                self.measured[gpu, ""] = known

    def start_anew(self) -> None:
        """A new process has measured nothing yet, and counts from 0."""
        self.measured.clear()
        self.kernels.clear()

    def assign(self) -> None:
        random = self.random
        self.ids, self.held = defaultdict(list), {}
        for gpu in GPUS:
            for instance, uuid in self.cut[gpu].items():
                if pod := random.choice((*PODS, None)):
                    self.ids[pod].append((f"nvidia.com/mig-{PROFILES[INSTANCES[uuid][2]]}", uuid))
                    self.held[gpu, instance] = {pod: Fraction(INSTANCES[uuid][2], SLICES)}
            if self.cut[gpu]:
                continue
            if self.is_calm or random.randrange(2):
                for share in range(4):
                    if pod := random.choice((*PODS, None)):
                        self.ids[pod].append((SHARED, f"{GPU(gpu)}::{share}"))
                        parts = self.held.setdefault((gpu, ""), {})
                        parts[pod] = parts.get(pod, Fraction(0)) + Fraction(1, 4)
            elif pod := random.choice((*PODS, None)):
                self.ids[pod].append(("nvidia.com/gpu", GPU(gpu)))
                self.held[gpu, ""] = {pod: Fraction(1)}

    def look(self) -> str | None:
        """Note what a look sees now, and return its page; None where there is none."""
        random, failed = self.random, self.failed
        counters, activity, slices, page = {}, {}, {}, 'x{cpu="0"} 1\n'
        for gpu in GPUS:
            if not random.randrange(8):
                continue  # dcgm-exporter has just started: not yet on its page
            counter, of_devices = self.read[gpu]
            if counter is not None:
                counters[gpu] = counter
            for instance, active in of_devices.items():
                of = INSTANCES[self.cut[gpu][instance]][2] if instance else SLICES
                slices[gpu, instance] = of
                activity[gpu, instance] = Fraction(active)
                profile = PROFILES.get(of, "")
                value = "9223372036854775794" if counter is None else str(counter)
                page += row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value, gpu, instance, profile)
                page += row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", active, gpu, instance, profile)
        held = {place: dict(parts) for place, parts in self.held.items()}
        of_shares = (device for ids in self.ids.values() for resource, device in ids if resource == SHARED)
        shared = frozenset((gpu, "") for device in of_shares for gpu in GPUS if device.startswith(GPU(gpu)))
        kernels = {place: dict(times) for place, times in self.measured.items()}
        if not failed:
            self.sampled = frozenset(slices)
        self.looks.append(Look(self.at, failed, counters, held, slices, activity, shared, kernels, self.sampled))
        return None if failed == "page" else page


def values_of(text: str) -> Mapping[str, Decimal]:
    """The value of each series of a text, to the printed digit."""
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {series: Decimal(value) for series, _, value in lines}


@lru_cache(maxsize=1)
def samples(text: str) -> Sequence[tuple[str, Mapping[str, str], Decimal]]:
    """Each sample of a text with its value to the printed digit."""
    read = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    values = values_of(text).values()
    return [(sample.name, sample.labels, value) for sample, value in zip(read, values, strict=True)]


def rows_of(text: str, name: str) -> dict[tuple[str, Place], Decimal]:
    """A family's rows by pod and device."""
    gpus = {GPU(gpu): gpu for gpu in GPUS}
    return {
        (labels["pod"], (gpus[labels["UUID"]], labels["GPU_I_ID"])): value
        for family, labels, value in samples(text)
        if family == name
    }


# issue 9, "Must show" 2; issue 10, "Must show" 3
@pytest.mark.history
@settings(max_examples=25, deadline=None, phases=(Phase.reuse, Phase.generate))  # to shrink one takes minutes
@given(st.randoms(use_true_random=False), st.integers(1, 25), st.sampled_from((0, 10, 30, 30, 60)), st.booleans())
def test_nothing_is_lost_and_nothing_is_counted_twice(random: Random, steps: int, rhythm: int, is_calm: bool) -> None:
    world = World(random, rhythm, is_calm)
    more = {
        "rules": RULES,
        "mig": {uuid: (gpu, instance, PROFILES[of]) for uuid, (gpu, instance, of) in INSTANCES.items()},
        "offered": {(SHARED, DeviceKey(uuid=GPU(gpu))): 4 for gpu in GPUS},
    }
    looks, undisturbed = Looks(**more), Looks(**more)  # type: ignore[arg-type]
    world.assign()
    before: Mapping[str, Decimal] = {}
    for _ in range(steps):
        world.move()
        if restarts := not random.randrange(12 if is_calm else 4):
            world.start_anew()
        page = world.look()
        look = world.looks[-1]
        measured: dict[DeviceKey, Mapping[Owner | None, int]] = {}
        for (gpu, _), times in look.kernels.items():
            measured.update(kernels(times, gpu))
        for each in (looks, undisturbed):
            each.at(world.at, page, world.ids, kubelet=look.failed != "kubelet", sm_ns=measured)
        for _ in range(random.randrange(3)):  # scrapers, who look when they like
            looks.snapshot(page, {"z": [("nvidia.com/gpu", GPU(0))]})
            looks.text()
            looks.ledger.note_shown()
        if restarts:
            look.is_last_of_process = True
            # it begins to measure anew, too; a look that failed does not tell it so
            undisturbed.ledger._kernels = KernelTimes()
            wall = 1_000_000 * SECOND
            looks.ledger = restore(dump(looks.ledger, wall), wall, world.at * SECOND)
        now = values_of(looks.text())
        for series, value in before.items():
            if "_total{" in series:
                assert now[series] >= value, series
        before = now
    text = looks.text()
    assert text == undisturbed.text()
    check(text, world.looks)


def check(text: str, looks: list[Look]) -> None:
    """Hold what the families say beside the plain account."""
    gpus = plain(looks, GPUS)
    energy, drawn = together(gpu.energy for gpu in gpus), sum(gpu.drawn for gpu in gpus)
    found = rows_of(text, "pod_gpu_energy_joules_total")
    assert sum(found.values()) * 1000 == drawn
    # in microjoules and nanoseconds, a unit for each division
    compare(found, {key: amount / 1000 for key, amount in energy.items()}, Fraction(3 * len(looks), 1_000_000))
    time, elapsed, full = plain_time(looks, GPUS)
    held = rows_of(text, "pod_gpu_allocated_seconds_total")
    compare(held, time, Fraction(2 * len(looks), SECOND))
    for gpu in GPUS:
        of_gpu = sum(value for (_, place), value in held.items() if place[0] == gpu)
        assert of_gpu <= elapsed
        if gpu in full:
            assert of_gpu == elapsed
    active, idle, observed, unknown = (
        together(getattr(gpu, of) for gpu in gpus) for of in ("active", "idle", "observed", "unknown")
    )
    compare(rows_of(text, "pod_gpu_observed_seconds_total"), observed, Fraction(2 * len(looks), SECOND))
    used = rows_of(text, "pod_gpu_active_seconds_total")
    compare(used, active, Fraction(3 * len(looks), SECOND))
    compare(rows_of(text, "pod_gpu_idle_seconds_total"), idle, Fraction(2 * len(looks), SECOND))
    compare(rows_of(text, "pod_gpu_idle_unknown_seconds_total"), unknown, Fraction(2 * len(looks), SECOND))
    ratios: dict[int, Decimal] = defaultdict(Decimal)
    for (_, place), value in rows_of(text, "pod_gpu_allocated_ratio").items():
        ratios[place[0]] += value
    assert all(ratio <= Decimal("1.0000001") for ratio in ratios.values())
    gaps = sum(value for name, _, value in samples(text) if name == "pod_gpu_accounting_gap_seconds_total")
    assert gaps == sum(
        second.at - first.at
        for first, second in pairwise(looks)
        if first.failed or second.failed or second.at - first.at > 2 * INTERVAL
    )


def compare(
    found: Mapping[tuple[str, Place], Decimal], plain: Mapping[tuple[str, Place], Fraction], off: Fraction
) -> None:
    """What is found is what was reckoned plainly, but for so much."""
    for key in {*found, *plain}:
        assert abs(Fraction(found.get(key, Decimal(0))) - plain.get(key, Fraction(0))) <= off, key
