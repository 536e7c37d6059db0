"""Throttling: the time for which a GPU's clocks were lowered, by reason, as GPU-seconds of its holders.

It comes from the page's violation counters. For a reason without a counter it comes from the bits of
CLOCKS_EVENT_REASONS: a bit that was set when dcgm-exporter read the GPU counts until it reads the GPU again.

Tests: tests/accounts/test_standing_pages.py.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from exporter.accounts.entries import NANOSECONDS, AmountFamily
from exporter.accounts.gpu import GpuAtLook
from exporter.accounts.stretches import CountersAtLook

THROTTLED = "throttled_ns"
FAMILIES = (AmountFamily("pod_gpu_throttled_seconds_total", THROTTLED, NANOSECONDS, labels=("reason",)),)
# nvmlClocksEventReasons: SW power cap and HW power brake, SW and HW thermal slowdown, sync boost
_BITS = {"power": 0x4 | 0x80, "thermal": 0x20 | 0x40, "sync_boost": 0x10}
# the driver sets HW slowdown beside HW thermal slowdown and HW power brake, which say why; alone it is a reason itself
_HW_SLOWDOWN = 0x8
_SAID_WHY = 0x40 | 0x80


@dataclass(slots=True, eq=False)
class Throttling:
    """The throttling of a GPU; `counters` are its violation counters, by reason."""

    counters: CountersAtLook | None = None

    def count(self, gpu: GpuAtLook) -> None:
        """Count the time for which the GPU was throttled since its last look."""
        counters = self.counters
        values = gpu.samples.of("violations")
        if gpu.is_other:
            of_bits = (*_BITS, "hw_slowdown") if gpu.samples.of("reasons") else ()
            gpu.start(*((THROTTLED, reason) for reason in (*values, *of_bits)))
        if counters is not None and not values and gpu.at_ns - counters.at_ns >= gpu.keep_ns:
            counters = self.counters = None
        counted = frozenset(counters.values) if counters is not None else frozenset()
        for stretch, samples in gpu.described:
            bits = samples.of("reasons").get("")
            for reason in _reasons(bits) - counted if bits else ():
                gpu.give(stretch.held, THROTTLED, stretch.ns, reason)
        if counters is None:
            self.counters = gpu.first_read(dict(values)) if values else None
        elif values:
            self._count_growth(gpu, counters, values)

    def _count_growth(self, gpu: GpuAtLook, counters: CountersAtLook, values: Mapping[str, int]) -> None:
        gpu.reach(counters)
        grown = {reason: counters.grow_to(reason, value) for reason, value in values.items()}
        for stretch, amounts in counters.divide(grown):
            for reason, ns in amounts.items():
                gpu.give(stretch.held, THROTTLED, ns, reason)
        # a GPU is mostly not throttled, so a counter that does not grow may well have been read again
        if gpu.is_new:
            counters.renew()


def _reasons(bits: int) -> AbstractSet[str]:
    reasons = {reason for reason, its_bits in _BITS.items() if bits & its_bits}
    if bits & _HW_SLOWDOWN and not bits & _SAID_WHY:
        reasons.add("hw_slowdown")
    return reasons
