"""A family of the exporter's own: what it says of itself, and the function that fills it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exporter.exposition.families import Family, Filled, Samples
from exporter.outputs.output import Look


@dataclass(frozen=True, slots=True)
class OwnFamily(Family):
    """A family, and `fill`, which makes its samples of a look. What is unknown is no sample; none leave it out."""

    fill: Callable[[Look], Samples] = field(kw_only=True)


def filled(families: Iterable[OwnFamily], look: Look) -> Iterable[Filled]:
    """The families with their samples."""
    return (Filled(family, family.fill(look)) for family in families)
