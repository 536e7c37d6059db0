"""A family of the exporter's own: what it says of itself, and the function that fills it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from exporter.exposition.families import Family, Filled, Samples
from exporter.outputs.output import Look


@dataclass(frozen=True, slots=True)
class OwnFamily(Family):
    """A family, and `fill`, which makes its samples of a look. What is unknown is no sample; none leave it out.

    `more` are the names of labels that only the look tells (those of pods); their values follow the others'.
    """

    fill: Callable[[Look], Samples] = field(kw_only=True)
    more: Callable[[Look], tuple[str, ...]] | None = field(kw_only=True, default=None)

    def filled(self, look: Look) -> Filled:
        """The family with its samples."""
        more = self.more(look) if self.more is not None else ()
        family = Family(self.name, self.kind, self.help, (*self.labels, *more)) if more else self
        return Filled(family, self.fill(look))


def filled(families: Iterable[OwnFamily], look: Look) -> Iterable[Filled]:
    """The families with their samples."""
    return (family.filled(look) for family in families)
