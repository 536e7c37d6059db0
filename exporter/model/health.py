"""The health of devices: one verdict for each device, with its reasons.

Tests: tests/ownership/test_verdicts.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exporter.errors import Trouble
from exporter.model.devices import DeviceKey
from exporter.model.nothing import NOTHING

Verdict = Literal["ok", "degraded", "unknown", "failing", "gone"]
# the worst first; `unknown` may hide something worse than what stands after it
VERDICTS: tuple[Verdict, ...] = ("gone", "failing", "unknown", "degraded", "ok")
MOST_REASONS = 8  # reasons of one device; a flood of different errors shows no more
OF_DCGM = "dcgm"
"""The beginning of the codes of reasons that are DCGM's own verdict (dcgm/health_watches.py)."""


@dataclass(frozen=True, slots=True, order=True)
class HealthReason(Trouble):
    """What is wrong with a device, and what to do; the reason is a word of a closed set (docs/health.md)."""

    verdict: Verdict = "unknown"


def rank(reason: HealthReason) -> tuple[int, bool, HealthReason]:
    """The key that sorts reasons, the worst first. Among equally bad reasons, DCGM's summary comes last."""
    return VERDICTS.index(reason.verdict), reason.reason.startswith(OF_DCGM), reason


class DeviceVerdict(NamedTuple):
    """The worst verdict among a device's reasons, and the reasons, the worst first.

    `gpu` is the GPU's number; "" if nobody said it. `last_xid` is the last XID that the kernel's log or a change of the
    page has shown; None if they have shown none. `advice` is what could be better although the device is well.
    """

    verdict: Verdict = "ok"
    reasons: tuple[HealthReason, ...] = ()
    gpu: str = ""
    last_xid: int | None = None
    advice: tuple[Trouble, ...] = ()

    @property
    def code(self) -> str:
        """The code of the first reason; "" without a reason."""
        return self.reasons[0].reason if self.reasons else ""


DeviceVerdicts = Mapping[DeviceKey, DeviceVerdict]
NO_VERDICTS: DeviceVerdicts = NOTHING
