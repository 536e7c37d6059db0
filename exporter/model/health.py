"""How devices are: one verdict by device, with its reasons."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from exporter.model.devices import DeviceKey

Verdict = Literal["ok", "degraded", "unknown", "failing", "gone"]
VERDICTS: tuple[Verdict, ...] = ("gone", "failing", "unknown", "degraded", "ok")
"""The worst first. `unknown` stands above `degraded`: what nobody can say may be worse than what somebody can."""
MOST_REASONS = 8  # of a device: a flood of errors of all numbers shows no more


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthReason:
    """What is wrong with a device, and the verdict that it makes.

    `code` is a word of a closed set (ownership/verdicts.py has all). `text` says what is wrong, and `remedy` what to
    do; "" where nothing can be done. Both are printable, on one line.
    """

    code: str
    verdict: Verdict
    text: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text} -> {self.remedy}" if self.remedy else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceVerdict:
    """The worst of its reasons, which stand the worst first; `ok` without any.

    `index` is the GPU's number, "" where nobody has said it: a device that is gone keeps the one that it had.
    """

    verdict: Verdict = "ok"
    reasons: tuple[HealthReason, ...] = ()
    index: str = ""

    @property
    def code(self) -> str:
        """The first reason's; "" without any."""
        return self.reasons[0].code if self.reasons else ""


DeviceVerdicts = Mapping[DeviceKey, DeviceVerdict]
NO_VERDICTS: DeviceVerdicts = MappingProxyType({})
