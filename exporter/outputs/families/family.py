"""A family of the exporter's own: what it says of itself, and the function that fills it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from exporter.exposition.families import Family, Filled, Samples
from exporter.exposition.text import Written
from exporter.outputs.output import AnyLook

# what fills a family of any look, fills it of a look at a node
Seen_contra = TypeVar("Seen_contra", bound=AnyLook, contravariant=True)


def _nothing(_: AnyLook) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, slots=True)
class OwnFamily(Family, Generic[Seen_contra]):
    """A family, and `fill`, which makes its samples of a look. What is unknown is no sample; none leave it out.

    One whose numbers or labels do not fit this has `write` instead, which writes both.
    """

    fill: Callable[[Seen_contra], Samples] = field(default=_nothing, kw_only=True)
    write: Callable[[Seen_contra], Sequence[Written]] = field(default=_nothing, kw_only=True)


def filled(families: Iterable[OwnFamily[Seen_contra]], look: Seen_contra) -> Iterable[Filled]:
    """The families with their samples."""
    return (Filled(family, family.fill(look), family.write(look)) for family in families)
