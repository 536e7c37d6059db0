"""Random histories of a node, beside an account of them that is kept plainly, in fractions.

The plain account knows nothing of how the ledger works: it keeps every look, and reckons from the start each time.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from exporter.accounting.ledger import Rules
from exporter.accounting.state import dump, restore
from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, SECOND, Looks, row

INTERVAL, SLICES = 10, 7
SHARED = "nvidia.com/gpu.shared"
GPUS = (0, 1)
PODS = ("a", "b", "c")
PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb"}
# every way to cut a GPU: an instance's id and slices
INSTANCES = {
    f"MIG-{gpu}-{number}-{of}": (gpu, f"{number}{of}", of) for gpu in GPUS for number in "12" for of in PROFILES
}
RULES = Rules(interval_ns=INTERVAL * SECOND, keep_ns=10**18)

Place = tuple[int, str]  # GPU and GPU_I_ID


@dataclass
class Look:
    """What a look saw. `held` is by device and pod as a part of the GPU; `counters` are in mJ, by GPU."""

    at: int
    failed: str
    counters: Mapping[int, int]
    held: Mapping[Place, Mapping[str, Fraction]]
    slices: Mapping[Place, int]
    activity: Mapping[Place, Fraction]


@dataclass
class World:
    """Two GPUs, whole, shared or cut, and who holds what of them."""

    random: Random
    at: int = 0
    counters: dict[int, int] = field(default_factory=lambda: {0: 5_000, 1: 123_456_789})
    cut: dict[int, dict[str, str]] = field(default_factory=lambda: {0: {}, 1: {}})  # GPU → GPU_I_ID → MIG UUID
    ids: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # pod → resource and device id
    held: dict[Place, dict[str, Fraction]] = field(default_factory=dict)
    looks: list[Look] = field(default_factory=list)

    def move(self) -> None:
        """Time passes, counters grow or start again, GPUs are cut anew, pods come and go."""
        random = self.random
        self.at += random.choice((1, 7, 10, 10, 10, 20, 21, 45))
        is_cut_anew = False
        for gpu in GPUS:
            if not random.randrange(12):
                self.counters[gpu] = random.choice((0, self.counters[gpu] // 3))
            else:
                self.counters[gpu] += random.choice((0, 1, 999, 3_000_001))
            if not random.randrange(6):
                self.cut[gpu], is_cut_anew = {}, True
                for number in random.choice(((), (), "1", "12")):
                    uuid = f"MIG-{gpu}-{number}-{random.choice((1, 2, 3))}"
                    self.cut[gpu][INSTANCES[uuid][1]] = uuid
        if is_cut_anew or random.randrange(3):
            self.assign()

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
            if random.randrange(2):
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
        random = self.random
        failed = random.choice(("", "", "", "", "", "kubelet", "page"))
        counters, activity, slices, page = {}, {}, {}, 'x{cpu="0"} 1\n'
        for gpu in GPUS:
            if not random.randrange(8):
                continue  # dcgm-exporter has just started: not yet on its page
            says = random.choice((True, True, True, True, False))
            if says:
                counters[gpu] = self.counters[gpu]
            for instance in self.cut[gpu] or ("",):
                of = INSTANCES[self.cut[gpu][instance]][2] if instance else SLICES
                slices[gpu, instance] = of
                active = random.choice(("0", "0", "0.25", "1"))
                activity[gpu, instance] = Fraction(active)
                profile = PROFILES.get(of, "")
                value = str(self.counters[gpu]) if says else "9223372036854775794"
                page += row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value, gpu, instance, profile)
                page += row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", active, gpu, instance, profile)
        held = {place: dict(parts) for place, parts in self.held.items()}
        self.looks.append(Look(self.at, failed, counters, held, slices, activity))
        return None if failed == "page" else page


def grown(before: int, now: int) -> tuple[int, int]:
    """By how much a counter grew, and the value that is gone on with."""
    if now >= before:
        return now - before, now
    return (now, now) if 2 * now < before else (0, before)


def is_gap(looks: list[Look], first: int, last: int) -> bool:
    return last != first + 1 or looks[last].at - looks[first].at > 2 * INTERVAL


def plain_energy(looks: list[Look]) -> tuple[dict[tuple[str, Place], Fraction], int]:
    """In mJ: what each pod ("" for nobody) had of each device, and what the counters grew by in all."""
    had: dict[tuple[str, Place], Fraction] = defaultdict(Fraction)
    total = 0
    for gpu in GPUS:
        known: tuple[int, int] | None = None  # number of the look, value
        for number, look in enumerate(looks):
            if look.failed or gpu not in look.counters:
                continue
            if known is None:
                known = (number, look.counters[gpu])
                continue
            amount, value = grown(known[1], look.counters[gpu])
            first, gap = looks[known[0]], is_gap(looks, known[0], number)
            total += amount
            places = [place for place in first.slices if place[0] == gpu]
            by = [first.slices[place] * (0 if gap else first.activity[place]) for place in places]
            if not any(by):
                by = [Fraction(first.slices[place]) for place in places]
            for place, weight in zip(places, by, strict=True):
                part = amount * Fraction(weight) / sum(by)
                pods = first.held.get(place, {})
                for pod in pods or ("",):
                    stays = not gap or pod in look.held.get(place, {})
                    had[pod if stays else "", place] += part / max(1, len(pods))
            known = (number, value)
    return had, total


def plain_time(looks: list[Look]) -> tuple[dict[tuple[str, Place], Fraction], int, set[int]]:
    """In seconds: what each pod held of each device, how long all took, and the GPUs that were all held throughout."""
    had: dict[tuple[str, Place], Fraction] = defaultdict(Fraction)
    counted = [number for number, look in enumerate(looks) if not look.failed]
    full = set(GPUS)
    for first, last in pairwise(counted):
        for gpu in GPUS:
            of_gpu = Fraction(0)
            for place, parts in looks[first].held.items():
                for pod, part in parts.items() if place[0] == gpu else ():
                    if not is_gap(looks, first, last) or pod in looks[last].held.get(place, {}):
                        had[pod, place] += part * (looks[last].at - looks[first].at)
                        of_gpu += part
            if of_gpu < 1:
                full.discard(gpu)
    return had, looks[counted[-1]].at - looks[counted[0]].at if counted else 0, full


def samples(text: str) -> Iterable[tuple[str, Mapping[str, str], Decimal]]:
    """Each sample of a text with its value to the printed digit."""
    values = [line.rpartition(" ")[2] for line in text.splitlines() if not line.startswith("#")]
    found = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    for sample, value in zip(found, values, strict=True):
        yield sample.name, sample.labels, Decimal(value)


def rows_of(text: str, name: str) -> dict[tuple[str, Place], Decimal]:
    """A family's rows by pod and device."""
    gpus = {GPU(gpu): gpu for gpu in GPUS}
    return {
        (labels["pod"], (gpus[labels["UUID"]], labels["GPU_I_ID"])): value
        for family, labels, value in samples(text)
        if family == name
    }


# issue 9, "Must show" 2
@settings(max_examples=100, deadline=None, phases=(Phase.reuse, Phase.generate))  # to shrink one takes minutes
@given(st.randoms(use_true_random=False), st.integers(1, 25))
def test_nothing_is_lost_and_nothing_is_counted_twice(random: Random, steps: int) -> None:
    world = World(random)
    more = {
        "rules": RULES,
        "mig": {uuid: (gpu, instance, PROFILES[of]) for uuid, (gpu, instance, of) in INSTANCES.items()},
        "offered": {(SHARED, DeviceKey(uuid=GPU(gpu))): 4 for gpu in GPUS},
    }
    looks, undisturbed = Looks(**more), Looks(**more)  # type: ignore[arg-type]
    world.assign()
    before: dict[tuple[str, frozenset[tuple[str, str]]], Decimal] = {}
    for _ in range(steps):
        world.move()
        page = world.look()
        kubelet = world.looks[-1].failed != "kubelet"
        for each in (looks, undisturbed):
            each.at(world.at, page, world.ids, kubelet=kubelet)
        for _ in range(random.randrange(3)):  # scrapers, who look when they like
            looks.snapshot(page, {"z": [("nvidia.com/gpu", GPU(0))]})
            looks.text()
            looks.ledger.note_shown()
        if not random.randrange(4):  # a restart
            wall = 1_000_000 * SECOND
            looks.ledger = restore(dump(looks.ledger, wall), wall, world.at * SECOND)
        now = {(name, frozenset(labels.items())): value for name, labels, value in samples(looks.text())}
        for series, value in before.items():
            if series[0].endswith("_total"):
                assert now[series] >= value, series
        before = now
    text = looks.text()
    assert text == undisturbed.text()
    check(text, world.looks)


def check(text: str, looks: list[Look]) -> None:
    """Hold what the families say beside the plain account."""
    energy, drawn = plain_energy(looks)
    found = rows_of(text, "pod_gpu_energy_joules_total")
    assert sum(found.values()) * 1000 == drawn
    for key in {*energy, *found}:
        # in microjoules, a unit for each division
        assert abs(Fraction(found.get(key, Decimal(0))) - energy[key] / 1000) <= Fraction(2 * len(looks), 1_000_000), (
            key
        )
    time, elapsed, full = plain_time(looks)
    held = rows_of(text, "pod_gpu_allocated_seconds_total")
    for key in {*time, *held}:
        assert abs(Fraction(held.get(key, Decimal(0))) - time[key]) <= Fraction(2 * len(looks), SECOND), key
    for gpu in GPUS:
        of_gpu = sum(value for (_, place), value in held.items() if place[0] == gpu)
        assert of_gpu <= elapsed
        if gpu in full:
            assert of_gpu == elapsed
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
