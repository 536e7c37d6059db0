"""A family of the exporter's own metrics as data: name, type, help, labels, and samples; and its text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exporter.exposition.text import Written, render_family, render_written
from exporter.model.slices import Work

Samples = Sequence[tuple[tuple[str, ...], float]]


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

    In a histogram the suffix of the series' name comes first (`_bucket`, `_count`, `_sum`), then the label values. Of a
    family whose samples are `written`, the labels are those of its text.
    """

    family: Family
    samples: Samples = ()
    written: Sequence[Written] = ()


def render(families: Iterable[Filled]) -> bytes:
    """The families one after the other; one without samples is left out: unknown yields no series."""
    return b"".join([_render(found.family, found) for found in families])


def pieces(families: Iterable[Filled]) -> Work[list[bytes]]:
    """The same as a piece for each family, with a pause after it."""
    texts = []
    for found in families:
        texts.append(_render(found.family, found))
        yield
    return texts


def _render(family: Family, found: Filled) -> bytes:
    if found.written:
        return render_written(family.name, family.kind, family.help, found.written)
    return render_family(family.name, family.kind, family.help, family.labels, found.samples)
