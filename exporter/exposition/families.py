"""A family of the exporter's own metrics as data: name, type, help, labels, and samples; and its text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.exposition.text import Number, render_family

Sample = tuple[tuple[str, ...], Number]
Samples = Sequence[Sample]


@dataclass(frozen=True, slots=True)
class Family:
    """One family of the catalogue. A counter's name ends in _total."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """A family with its samples: one tuple of label values (as many as the family has labels) and a number each.

    In a histogram the suffix of the series' name comes first (`_bucket`, `_count`, `_sum`), then the label values.
    """

    family: Family
    samples: Samples


def render(families: Iterable[Filled]) -> bytes:
    """The families one after the other; one without samples is left out: unknown yields no series."""
    return b"".join(
        [
            render_family(found.family.name, found.family.kind, found.family.help, found.family.labels, found.samples)
            for found in families
        ]
    )
