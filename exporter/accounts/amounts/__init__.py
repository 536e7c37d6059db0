"""What accounts count: a file for each thing, in the order of the families on /metrics."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from exporter.accounts.amounts import activity, allocated, energy, link_counts, memory_ends, throttling, xids
from exporter.accounts.entries import AmountFamily
from exporter.accounts.gpu import AmountOfGpu


class CountedAmount(NamedTuple):
    """An amount: its name in the state file, and its families. Without `of_gpu` the ledger itself counts it."""

    name: str
    families: Sequence[AmountFamily]
    of_gpu: Callable[[], AmountOfGpu] | None = None


AMOUNTS: Sequence[CountedAmount] = (
    CountedAmount("allocated", allocated.FAMILIES),
    CountedAmount("activity", activity.FAMILIES, activity.Activity),
    CountedAmount("energy", energy.FAMILIES, energy.Energy),
    CountedAmount("xids", xids.FAMILIES, xids.Xids),
    CountedAmount("throttling", throttling.FAMILIES, throttling.Throttling),
    CountedAmount("memory_ends", memory_ends.FAMILIES, memory_ends.MemoryEnds),
    CountedAmount("links", link_counts.FAMILIES, link_counts.LinkCounts),
)


def new_amounts() -> dict[str, AmountOfGpu]:
    """The state of the amounts, by name, for a GPU that no look has seen before."""
    return {amount.name: amount.of_gpu() for amount in AMOUNTS if amount.of_gpu is not None}
