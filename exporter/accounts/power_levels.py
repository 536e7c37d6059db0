"""The powers of a model of GPU on this node, idle and at work, as its GPUs here show them.

Tests: tests/accounts/test_power_levels.py, tests/accounts/test_hangs.py.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from exporter.accounts.hang_signs import DeviceSigns

_STEP_WATTS = 2.0
# After this number of values all count for half, so that new ones have weight.
_MOST_VALUES = 8_192
# Fewer looks than this teach nothing: two minutes of one GPU.
_FEWEST = 12
# A node has one or two. A page may say anything, and what was learned is kept as long as the process.
MOST_MODELS = 16
_LOW, _HIGH = 0.05, 0.9
# A kernel that works keeps the tensor cores or the memory busy for at least this part of the time.
_AT_WORK = 0.05
_ACTIVE = 0.5
_AT_REST = 0.001


class PowerLevels(NamedTuple):
    """Powers of one model in W: `idle` is a low one without any kernel, `busy` a high one while kernels work."""

    idle: float
    busy: float

    def part(self, watts: float) -> float:
        """Where a power lies between both: 0 is idle, 1 is busy."""
        return (watts - self.idle) / (self.busy - self.idle)


Levels = Mapping[str, PowerLevels]  # by model


class _Quantile:
    """Counts of powers in steps, of which a quantile is asked."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts = Counter[int]()

    def note(self, watts: float) -> None:
        self._counts[int(watts / _STEP_WATTS)] += 1
        if self._counts.total() >= _MOST_VALUES:
            halves = {step: count // 2 for step, count in self._counts.items() if count > 1}
            self._counts = Counter(halves)

    def at(self, part: float) -> float | None:
        """The power below which this part of the values lies; None if there are too few."""
        all_values = self._counts.total()
        if all_values < _FEWEST:
            return None
        wanted = part * all_values
        below = 0
        for step in sorted(self._counts):
            below += self._counts[step]
            if below > wanted:
                break
        return (step + 0.5) * _STEP_WATTS


class PowersOfModels:
    """What is learned of each model, of MOST_MODELS at most.

    GPUs of one model on one node have the same limits, air and firmware, so they learn together. Nothing is taken from
    a table of models: boards of one name differ, and so do their power limits.

    `levels` has the models of which both powers are known. It is worked out once for each look, by `settle`.
    """

    def __init__(self) -> None:
        self._idle: dict[str, _Quantile] = {}
        self._busy: dict[str, _Quantile] = {}
        self._models: set[str] = set()
        self.levels: Levels = {}

    def note(self, model: str, signs: DeviceSigns) -> None:
        """Learn from a whole GPU at a look. A kernel that may only wait teaches nothing."""
        activity, power, memory = signs.activity, signs.power, signs.memory
        if activity is None or not power or not self._is_kept(model):
            return
        if activity <= _AT_REST:
            self._idle.setdefault(model, _Quantile()).note(power)
        elif activity >= _ACTIVE and max(memory or 0.0, signs.tensor or 0.0) >= _AT_WORK:
            self._busy.setdefault(model, _Quantile()).note(power)

    def _is_kept(self, model: str) -> bool:
        """Whether a model is among the first MOST_MODELS."""
        if len(self._models) < MOST_MODELS:
            self._models.add(model)
        return model in self._models

    def settle(self) -> None:
        """Work out the levels after all GPUs of a look."""
        levels: dict[str, PowerLevels] = {}
        for model, at_rest in self._idle.items():
            at_work = self._busy.get(model)
            idle = at_rest.at(_LOW)
            busy = at_work.at(_HIGH) if at_work is not None else None
            if idle is not None and busy is not None and busy > idle:
                levels[model] = PowerLevels(idle, busy)
        self.levels = levels
