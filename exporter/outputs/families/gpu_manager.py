"""gpu-manager's own families, with its names and labels, so that its dashboards keep working.

Facts from its pkg/services/display/display.go: gauges; utilisation in percent of a card and memory in MiB, a series a
card (gpu0, gpu1, …) and their sum (total); what was asked for in cards and MiB. They are always on, as they are few: a
container has two series for each GPU that it holds, and four more.
"""

from collections.abc import Callable, Iterator

from exporter.accounts.cards import Cards
from exporter.exposition.families import Samples
from exporter.outputs.families.family import gauge
from exporter.outputs.output import Look

_OF_CONTAINER = ("pod_name", "namespace", "node", "container_name")
_TOTAL = "total"
# what a label of the family says, and the value; None where it is not known
_Values = Iterator[tuple[str, float | None]]


def _utilization(cards: Cards) -> _Values:
    for card in cards.each:
        yield f"gpu{card.index}", card.utilization
    yield _TOTAL, cards.utilization


def _memory(cards: Cards) -> _Values:
    for card in cards.each:
        yield f"gpu{card.index}", card.memory_mib
    yield _TOTAL, cards.memory_mib


def _asked_cards(cards: Cards) -> _Values:
    yield _TOTAL, cards.asked_cards


def _asked_memory(cards: Cards) -> _Values:
    yield _TOTAL, cards.asked_memory_mib


def _each(values: Callable[[Cards], _Values]) -> Callable[[Look], Samples]:
    def fill(look: Look) -> Samples:
        return [
            ((owner.pod, owner.namespace, look.snapshot.node, owner.container, label), amount)
            for owner, cards in look.cards.items()
            for label, amount in values(cards)
            if amount is not None
        ]

    return fill


FAMILIES = (
    gauge(
        "container_gpu_utilization",
        "Percent of the time in which kernels of a container ran, 0 to 100 a card; total is the sum of its cards.",
        (*_OF_CONTAINER, "gpu"),
        fill=_each(_utilization),
    ),
    gauge(
        "container_gpu_memory_total",
        "GPU memory that a container uses, in MiB, by card; total is the sum of its cards.",
        (*_OF_CONTAINER, "gpu_memory"),
        fill=_each(_memory),
    ),
    gauge(
        "container_request_gpu_utilization",
        "Cards that a container asked for: a share, or a MIG instance, is the part of a card that it is.",
        (*_OF_CONTAINER, "req_of_gpu"),
        fill=_each(_asked_cards),
    ),
    gauge(
        "container_request_gpu_memory",
        "GPU memory that a container asked for, in MiB: that of its cards, or its part of it.",
        (*_OF_CONTAINER, "req_of_gpu_memory"),
        fill=_each(_asked_memory),
    ),
)
