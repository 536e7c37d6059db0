"""Full memory: the time for which more than 80 % of a device's memory was in use, as GPU-seconds of its holders."""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.accounts.entries import NANOSECONDS, AmountFamily
from exporter.accounts.gpu import GpuAtLook
from exporter.accounts.observation import GpuSamples

FULL = "full_memory_ns"
FAMILIES = (AmountFamily("pod_gpu_memory_full_seconds_total", FULL, NANOSECONDS),)
_PERCENT = 100
_FULL_ABOVE = 80


@dataclass(slots=True, eq=False)
class FullMemory:
    """The full memory of a GPU. It remembers nothing: each page says how full the memory is."""

    def count(self, gpu: GpuAtLook) -> None:
        """Count the time for which the memory of the GPU's devices was full since its last look."""
        if gpu.is_other:
            gpu.start((FULL, ""), instances=_is_full(gpu.samples).keys())
        for stretch, samples in gpu.described:
            is_full = _is_full(samples)
            if not any(is_full.values()):
                continue
            for (device, entry), ns in zip(stretch.held.holders, stretch.held.times(stretch.ns), strict=False):
                if is_full.get(device.key.instance) and not entry.is_dropped:
                    entry.add(FULL, ns)


def _is_full(samples: GpuSamples) -> Mapping[str, bool]:
    """Whether the memory is full, by GPU_I_ID; without devices of which the page lacks a value."""
    free = samples.of("memory_free")
    used = samples.of("memory_used").items()
    return {
        instance: amount * _PERCENT > _FULL_ABOVE * (amount + free[instance])
        for instance, amount in used
        if instance in free
    }
