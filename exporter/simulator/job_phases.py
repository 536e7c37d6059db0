"""The phases of containers' work on their GPUs, on a simulated node. Pure: they depend only on seed and time.

Time is the pods' time (life), in seconds, which a demo may let run faster than the physics.

Tests: tests/simulator/test_workloads.py.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

_MOST = 2**64


@lru_cache(maxsize=1024, typed=True)  # most calls repeat those of a second ago
def chance(*seeds: object) -> float:
    """A random number from 0 (included) to 1 (excluded). It depends only on the seeds, and on no earlier call."""
    return int.from_bytes(blake2b(repr(seeds).encode(), digest_size=8).digest()) / _MOST


DAY = 86_400.0
MORNING = 10 * 3600.0  # the hour of the day at which a simulated node begins
# What work that fills a device takes of it, as a multiple of what others take at most, and after how long (seconds).
MOST_MEMORY = 1.1
FILLED_SECONDS = 20.0
_SLOT = 10.0  # activity wavers from slot to slot
_TRAINS_BEFORE_IT_HANGS = 150.0
_TRAINS_BEFORE_IT_STARVES = 750.0


class WorkloadUse(NamedTuple):
    """A container's use of a device at a moment. Each field is a part of what the device can do (0 to 1).

    `waits` is the part of the activity in which kernels only poll, and so draw little power.
    """

    activity: float = 0.0
    memory: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    pcie: float = 0.0
    nvlink: float = 0.0
    waits: float = 0.0


def use(workload: str, seed: object, age: float, clock: float) -> WorkloadUse:
    """A container's use `age` seconds after its start and `clock` seconds after the node's. Unknown workloads train."""
    return _PHASES.get(workload, _training)(seed, age, clock)


def _training(seed: object, age: float, clock: float) -> WorkloadUse:
    """A training: it loads data, then trains. About every 20 minutes it writes a checkpoint, every 2 hours it tests."""
    loading = 60 + 120 * chance(seed, "loading")
    if age < loading:
        return WorkloadUse(activity=0.04, memory=0.1 + 0.7 * age / loading, dram=0.03, pcie=0.6)
    age -= loading
    between = 900 + 600 * chance(seed, "checkpoints")
    if age % between > between - 30 - 30 * chance(seed, "disk"):
        return WorkloadUse(activity=0.06, memory=0.85, dram=0.05, pcie=0.45)
    if age % 7200 > 7000:  # noqa: PLR2004
        return _at(0.55, seed, clock, WorkloadUse(memory=0.85, tensor=0.5, dram=0.5, nvlink=0.1))
    most = 0.82 + 0.16 * chance(seed, "size")
    return _at(most, seed, clock, WorkloadUse(memory=0.85, tensor=0.6, dram=0.55, pcie=0.12, nvlink=0.45))


def daytime(clock: float) -> float:
    """The demand for services as a part of its maximum: in the afternoon 1, at night 0."""
    hour = (MORNING + clock) % DAY
    return 0.5 - 0.5 * math.cos(2 * math.pi * (hour - 3 * 3600) / DAY)


def _serving(seed: object, age: float, clock: float) -> WorkloadUse:
    """A service: many requests come in the afternoon, few at night. It takes its memory at the start and keeps it."""
    if age < 45:  # noqa: PLR2004 - the weights are read
        return WorkloadUse(activity=0.02, memory=0.8 * age / 45, pcie=0.7)
    busy = 0.04 + (0.35 + 0.4 * chance(seed, "popular")) * daytime(clock)
    return _at(busy, seed, clock, WorkloadUse(memory=0.8, tensor=0.3, dram=0.75, pcie=0.05), wavers=0.25)


def _notebook(seed: object, age: float, clock: float) -> WorkloadUse:
    """A notebook: its user thinks for hours, and now and then runs a cell for some minutes."""
    memory = 0.05 + 0.25 * min(1.0, age / 3600)
    part = int(age // 900)
    begins = 900 * chance(seed, part, "begins") * 0.7
    if chance(seed, part) < 0.12 and begins <= age % 900 < begins + 40 + 200 * chance(seed, part, "long"):  # noqa: PLR2004
        return _at(0.5, seed, clock, WorkloadUse(memory=memory + 0.2, tensor=0.15, dram=0.4, pcie=0.2), wavers=0.4)
    return WorkloadUse(memory=memory)


def _batch(seed: object, age: float, clock: float) -> WorkloadUse:
    """Batch work: one piece after the other, with pauses for reading and writing."""
    length = 120 + 240 * chance(seed, "length")
    if age % length < 0.15 * length:
        return WorkloadUse(activity=0.03, memory=0.3, pcie=0.5)
    return _at(0.65, seed, clock, WorkloadUse(memory=0.5, tensor=0.2, dram=0.45, pcie=0.1))


def _filling(seed: object, age: float, clock: float) -> WorkloadUse:
    """Work that takes more and more memory, until there is no more: its allocator keeps what it has."""
    memory = 0.15 + (MOST_MEMORY - 0.15) * min(1.0, age / FILLED_SECONDS)
    return _at(0.7, seed, clock, WorkloadUse(memory=memory, tensor=0.3, dram=0.5, pcie=0.1))


def _at(busy: float, seed: object, clock: float, at_full: WorkloadUse, wavers: float = 0.06) -> WorkloadUse:
    """The use at an activity of about `busy`, which wavers by the part `wavers` of it.

    Ratios but the memory are in proportion to those `at_full` activity.
    """
    activity = min(1.0, busy * (1 + wavers * (2 * chance(seed, int(clock // _SLOT)) - 1)))
    return WorkloadUse(activity, at_full.memory, *(ratio * activity for ratio in at_full[2:]))


def _burn_in(seed: object, _: float, clock: float) -> WorkloadUse:
    """A test that keeps the whole GPU busy, as after a repair."""
    return _at(0.97, seed, clock, WorkloadUse(memory=0.9, tensor=0.8, dram=0.7), wavers=0.03)


def _hung(seed: object, age: float, clock: float) -> WorkloadUse:
    """A training whose collective waits for a rank that never comes: from its third minute on kernels only poll."""
    if age < _TRAINS_BEFORE_IT_HANGS:
        return _steady(seed, clock)
    polls = 0.97 + 0.03 * chance(seed, "polls", int(clock // _SLOT))
    return WorkloadUse(activity=1.0, memory=0.85, dram=0.001 + 0.001 * polls, waits=polls)


def _starving(seed: object, age: float, clock: float) -> WorkloadUse:
    """A training whose loader falls behind in its thirteenth minute: from then on a step now and then."""
    if age < _TRAINS_BEFORE_IT_STARVES:
        return _steady(seed, clock)
    busy = 0.005 + 0.08 * chance(seed, "steps", int(clock // _SLOT))
    return _at(busy, seed, clock, WorkloadUse(memory=0.85, tensor=0.6, dram=0.55, pcie=0.01, nvlink=0.1), wavers=0.5)


def _steady(seed: object, clock: float) -> WorkloadUse:
    return _at(0.93, seed, clock, WorkloadUse(memory=0.85, tensor=0.5, dram=0.45, pcie=0.01, nvlink=0.3))


TRAINING = "training"
SERVING = "serving"
NOTEBOOK = "notebook"
BATCH = "batch"
BURN_IN = "burn-in"
FILLING = "filling"
HUNG = "hung"
STARVING = "starving"
STUCK = (HUNG, STARVING)
_PHASES: dict[str, Callable[[object, float, float], WorkloadUse]] = {
    TRAINING: _training,
    SERVING: _serving,
    NOTEBOOK: _notebook,
    BATCH: _batch,
    BURN_IN: _burn_in,
    FILLING: _filling,
    HUNG: _hung,
    STARVING: _starving,
    "train-resnet": _training,
    "finetune-llm": _training,
    "serve-embeddings": _serving,
    "render": _batch,
    "eval-nightly": _batch,
    "jupyter": _notebook,
}


def serves(workload: str) -> bool:
    """Whether somebody waits for the workload, so that its controller starts it again after a crash."""
    return _PHASES.get(workload) in (_serving, _notebook)


def together(uses: Sequence[WorkloadUse], parts: Sequence[float]) -> WorkloadUse:
    """The use of a device by all its holders. `parts` are the parts of its memory (0 to 1) that each may take."""
    if parts == [1.0]:
        return uses[0]
    with_parts = [use._replace(memory=use.memory * part) for use, part in zip(uses, parts, strict=True)]
    return WorkloadUse(*(min(1.0, sum(ratios)) for ratios in zip(*with_parts, strict=True)))
