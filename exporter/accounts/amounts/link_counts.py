"""Errors of links: those of a GPU's NVLinks, by kind and link, and its replays of PCIe. The GPU's holders get them.

dcgm/links.py says which counters of a page count what. A kind of errors that a link never had has no row, since a pod
on eight GPUs would have hundreds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from exporter.accounts.entries import COUNTS, AmountFamily, joined_values
from exporter.accounts.gpu import GpuAtLook
from exporter.accounts.observation import LINKS
from exporter.accounts.stretches import CountersAtLook
from exporter.dcgm.links import NewErrors

LINK_ERRORS = "link_errors"
FAMILIES = (AmountFamily("pod_gpu_link_errors_total", LINK_ERRORS, COUNTS, labels=("kind", "link")),)


@dataclass(slots=True, eq=False)
class LinkCounts:
    """The counters of a GPU's links, and by how much each is behind others, by `counter_name` of dcgm/links.py."""

    counters: CountersAtLook | None = None
    behind: dict[str, int] = field(default_factory=dict)

    def count(self, gpu: GpuAtLook) -> None:
        """Count the errors since the GPU's last look."""
        counters = self.counters
        values = gpu.samples.of(LINKS)
        if counters is not None and not values and gpu.at_ns - counters.at_ns >= gpu.keep_ns:
            counters = self.counters = None
            self.behind.clear()
        if counters is None:
            self.counters = gpu.first_read(dict(values)) if values else None
        elif values:
            self._count_growth(gpu, counters, values)

    def _count_growth(self, gpu: GpuAtLook, counters: CountersAtLook, values: Mapping[str, int]) -> None:
        """Count what these values of the page have grown by."""
        gpu.reach(counters)
        grown = dict.fromkeys(counters.values, 0)
        for name, value in values.items():
            growth = counters.grow_to(name, value)
            if growth:
                grown[name] = growth
        errors = NewErrors(self.behind).of(grown) if any(grown.values()) else {}
        amounts = {joined_values(*place): number for place, number in errors.items() if number}
        if amounts:
            for stretch, of_stretch in counters.divide(amounts):
                for place, number in of_stretch.items():
                    gpu.give(stretch.held, LINK_ERRORS, number, place)
        # a link mostly has no errors, so a counter that does not grow may well have been read again
        if gpu.is_new:
            counters.renew()
