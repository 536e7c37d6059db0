"""Worlds of one workload with known needs, and what a Prometheus that scrapes them would have."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

MIB = 2**20
PAGE_SECONDS = 30


@dataclass(frozen=True)
class Part:
    """What a part of a GPU really is, by `nvidia-smi mig -lgip` and data sheets: MiB, and its part of all SMs."""

    name: str
    mib: int
    sms: float


# the smallest first
REAL = {
    "NVIDIA H100 80GB HBM3": (
        Part("1g.10gb", 9984, 16 / 132),
        Part("1g.20gb", 20096, 26 / 132),
        Part("2g.20gb", 20096, 32 / 132),
        Part("3g.40gb", 40448, 60 / 132),
        Part("4g.40gb", 40448, 64 / 132),
        Part("", 81559, 1.0),
    ),
    "NVIDIA A100-SXM4-40GB": (
        Part("1g.5gb", 4864, 14 / 108),
        Part("1g.10gb", 9856, 14 / 108),
        Part("2g.10gb", 9984, 28 / 108),
        Part("3g.20gb", 20096, 42 / 108),
        Part("4g.20gb", 20096, 56 / 108),
        Part("", 40960, 1.0),
    ),
    "NVIDIA A30": (Part("1g.6gb", 5952, 14 / 56), Part("2g.12gb", 11968, 28 / 56), Part("", 24576, 1.0)),
    "NVIDIA L40S": (
        *(Part(f"1/{parts} of a GPU", 46068 // parts, 1 / parts) for parts in (10, 8, 6, 5, 4, 3, 2)),
        Part("", 46068, 1.0),
    ),
}
SHARES = {"1": 1 / 7, "2": 2 / 7, "3": 3 / 7, "4": 4 / 7}  # of a GPU of seven slices


@dataclass(frozen=True)
class Needs:
    """A workload that holds one part of a GPU, and values every 30 s: bytes, and activity of what it holds (0 to 1)."""

    number: int
    model: str
    held: Part
    memory: Sequence[float]
    activity: Sequence[float]

    @property
    def share(self) -> float:
        """Of the GPU, as accounts count it."""
        return SHARES[self.held.name[0]] if self.held.name else 1.0

    def suffices(self, part: Part) -> bool:
        """Whether it holds the true peaks."""
        return part.mib * MIB >= max(self.memory) and part.sms >= max(self.activity) * self.held.sms

    @property
    def smallest(self) -> int:
        """The place of the smallest part that would have held."""
        parts = REAL[self.model]
        return next((at for at, part in enumerate(parts) if self.suffices(part)), parts.index(self.held))


def make_needs(number: int, hours: int = 26) -> Needs:
    """Phases of some minutes to hours, in which memory and activity are near a level; one of them is the highest."""
    chance = random.Random(number)
    model = chance.choice(sorted(REAL))
    parts = REAL[model]
    is_cut = "H100" in model and chance.random() < 0.3
    held = next(part for part in parts if part.name == "3g.40gb") if is_cut else parts[-1]
    of_memory, of_activity = (chance.choice((0.05, 0.15, 0.4, 0.95)) * chance.uniform(0.5, 1) for _ in range(2))
    memory: list[float] = []
    activity: list[float] = []
    points = hours * 3600 // PAGE_SECONDS
    while len(memory) < points:
        bytes_now = chance.choice((0.2, 0.6, 0.9, 1.0)) * of_memory * held.mib * MIB
        active_now = chance.choice((0.0, 0.3, 0.8, 1.0)) * of_activity
        for _ in range(chance.choice((10, 40, 120))):
            memory.append(bytes_now * chance.uniform(0.97, 1.0))
            activity.append(active_now * chance.uniform(0.9, 1.0))
    return Needs(number, model, held, memory[:points], activity[:points])


def scraped(values: Sequence[float], chance: random.Random) -> Sequence[tuple[int, float]]:
    """Seconds and values of scrapes every 30 or 60 s, of which two in a hundred fail, some in a row."""
    each = chance.choice((1, 2))
    points = [(at * PAGE_SECONDS, value) for at, value in enumerate(values) if at % each == 0]
    gaps = {at + more for at in range(0, len(points), 400) if chance.random() < 0.9 for more in range(8)}
    return [point for at, point in enumerate(points) if at not in gaps]
