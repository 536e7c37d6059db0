"""A family of the exporter's own metrics as data: name, type, help, labels, and samples."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Family:
    """One family of the catalogue. A counter's name ends in _total."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Filled:
    """A family with its samples: one tuple of label values (as many as the family has labels) and a number each."""

    family: Family
    samples: tuple[tuple[tuple[str, ...], float], ...]
