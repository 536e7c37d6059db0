"""gpu-manager's own families, with its names and labels, so that its dashboards keep working.

Facts from its pkg/services/display/display.go: gauges; utilisation in percent of a card and memory in MiB, with a
series for each card (gpu0, gpu1, …) and for their sum (total); the amounts asked for, in cards and MiB. They are always
on, as they are few: a container has two series for each GPU that it holds, and four more.

Tests: tests/accounts/test_cards.py.
"""

from collections.abc import Callable

from exporter.accounts.cards import Card, Cards
from exporter.exposition.families import Samples
from exporter.outputs.families.family import own
from exporter.outputs.output import Look

_OfCard = Callable[[Card], float | None]
_OfAll = Callable[[Cards], float | None]


def _each(of_all: _OfAll, of_card: _OfCard | None = None) -> Callable[[Look], Samples]:
    """A filler with a value for all cards of a container together, and for each card; none for an unknown value."""

    def fill(look: Look) -> Samples:
        samples: list[tuple[tuple[str, ...], float]] = []
        for owner, cards in look.cards.items():
            names = (owner.pod, owner.namespace, look.snapshot.node, owner.container)
            amounts = [(f"gpu{card.index}", of_card(card)) for card in cards.each] if of_card else []
            amounts.append(("total", of_all(cards)))
            samples += [((*names, label), amount) for label, amount in amounts if amount is not None]
        return samples

    return fill


FAMILIES = (
    own("container_gpu_utilization", _each(lambda cards: cards.utilization, lambda card: card.utilization)),
    own("container_gpu_memory_total", _each(lambda cards: cards.memory_mib, lambda card: card.memory_mib)),
    own("container_request_gpu_utilization", _each(lambda cards: cards.asked_cards)),
    own("container_request_gpu_memory", _each(lambda cards: cards.asked_memory_mib)),
)
