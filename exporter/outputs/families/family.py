"""A family of the exporter's own: what it says of itself, and the function that fills it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from exporter.exposition.families import Family, Filled, Samples
from exporter.exposition.text import Written
from exporter.outputs.output import Look


def _nothing(_: Look) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True)
class OwnFamily(Family):
    """A family, and `fill`, which makes its samples of a look. What is unknown is no sample; none leave it out.

    One whose numbers or labels do not fit this has `write` instead, which writes both.
    """

    fill: Callable[[Look], Samples] = field(default=_nothing, kw_only=True)
    write: Callable[[Look], Sequence[Written]] = field(default=_nothing, kw_only=True)


def filled(families: Iterable[OwnFamily], look: Look) -> Iterable[Filled]:
    """The families with their samples."""
    return (Filled(family, family.fill(look), family.write(look)) for family in families)
