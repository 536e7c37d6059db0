"""Suspected hangs: jobs that hold GPUs and seem to make no progress, by what a page shows for ten minutes.

Tests: tests/accounts/test_hangs.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner, PodName

# A kernel is resident on every GPU of the job and does nothing, or the GPUs work in short bursts between long waits.
HangReason = Literal["waiting_kernel", "waiting_for_data"]
HANG_REASONS: Final[tuple[HangReason, ...]] = ("waiting_kernel", "waiting_for_data")
SUSPECTED: Final = "suspected hang"
HANG_REMEDIES: Final[Mapping[HangReason, str]] = {
    "waiting_kernel": (
        "see which rank is missing: py-spy dump on the job's processes, NCCL's flight recorder, and the other nodes of"
        " the job; what looks alike is in docs/hangs.md"
    ),
    "waiting_for_data": (
        "look at the job's loader and at the file system that it reads; what looks alike is in docs/hangs.md"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SuspectedHang:
    """A job on this node whose GPUs all show the same reason, without a break since `since_seconds` (since 1970).

    `holders` are the job's containers that hold `devices`. `workload_name` and `workload_kind` are "" if the exporter
    does not know workloads: then the job is one pod. `message` says what the GPUs showed at the last look.
    """

    reason: HangReason
    message: str
    since_seconds: float
    holders: tuple[Owner, ...]
    devices: frozenset[DeviceKey]
    workload_name: str = ""
    workload_kind: str = ""

    @property
    def pods(self) -> tuple[PodName, ...]:
        """The job's pods on this node, in stable order."""
        return tuple(sorted({holder.pod_key for holder in self.holders}))


@dataclass(frozen=True, slots=True, kw_only=True)
class HangEvent:
    """The begin or the end of a suspicion, at a moment in seconds since 1970."""

    at_seconds: float
    hang: SuspectedHang
    is_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hangs:
    """The suspicions of the last look, in stable order, and the last events, the newest first."""

    suspected: tuple[SuspectedHang, ...] = ()
    events: tuple[HangEvent, ...] = ()


NO_HANGS: Final = Hangs()
