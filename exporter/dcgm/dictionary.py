"""DCGM's dictionary: every field by its number, with its names in each generation of DCGM.

dictionary.tsv has a line for each field. `make dictionary` writes it from DCGM's own dcgm_fields.h of each generation
(release/dictionary.py). It is read only if a setting asks for another generation's names, or if somebody asks what
generation a page is of.

Tests: tests/repository/test_dictionary.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pkgutil import get_data
from typing import NamedTuple

PREFIX = "DCGM_FI_"
# DCGM 4.6 gave most fields new names; go-dcgm had those of NVLink's throughput a little earlier
LAST_WITH_OLDER_NAMES = "4.5.0"
LAST_WITH_ALIASES = "4.6.1"  # DCGM 4.7 made fields of their own of some second names


class FieldName(NamedTuple):
    """A name of a field, without DCGM_FI_, and the first and the last generation with it.

    `last` is "" if the newest generation has it.
    """

    text: str
    first: str
    last: str = ""


class NumberedField(NamedTuple):
    """A field of DCGM, by its number.

    `names` are in the order in which they came. DCGM calls the last name of a generation the field's own; the others
    are its deprecated names. `in_base_unit_of` is the number of the older field that measures the same in a unit that
    is no base unit; None if there is no such field.
    """

    number: int
    names: tuple[FieldName, ...]
    in_base_unit_of: int | None = None


@dataclass(frozen=True)
class Dictionary:
    """The fields of DCGM.

    Attributes:
        generations: versions of DCGM, the oldest first.
        partial: the generations of which only what they added is known, since their header could not be read.
        entries: the fields, by their number.
    """

    generations: tuple[str, ...]
    partial: frozenset[str]
    entries: Mapping[int, NumberedField]

    def names(self, entry: NumberedField, generation: str) -> tuple[str, ...]:
        """The names of a field in a generation, its own name last; none if the generation lacks the field."""
        return tuple(name.text for name in entry.names if self._is_in(name, generation))

    def all_names(self, generation: str) -> Mapping[str, int]:
        """Each name that a generation has, and the number that it stands for."""
        return {name: entry.number for entry in self.entries.values() for name in self.names(entry, generation)}

    def since(self, generation: str) -> frozenset[str]:
        """The names that came with this generation or a later one."""
        start = self.generations.index(generation)
        names = (name for entry in self.entries.values() for name in entry.names)
        return frozenset(name.text for name in names if self.generations.index(name.first) >= start)

    def _is_in(self, name: FieldName, generation: str) -> bool:
        place = self.generations.index
        return place(name.first) <= place(generation) and (not name.last or place(generation) <= place(name.last))


def dictionary() -> Dictionary:
    """The dictionary that comes with this program."""
    return read((get_data(__package__, "dictionary.tsv") or b"").decode().splitlines())


def read(lines: Iterable[str]) -> Dictionary:
    """A dictionary from its lines; `release/dictionary.py` writes them."""
    generations: tuple[str, ...] = ()
    partial: frozenset[str] = frozenset()
    entries: dict[int, NumberedField] = {}
    for line in lines:
        if line.startswith("# generations: "):
            written = line.removeprefix("# generations: ").split()
            generations = tuple(generation.removesuffix("+") for generation in written)
            partial = frozenset(generation.removesuffix("+") for generation in written if generation.endswith("+"))
        elif not line.startswith("#"):
            entry = _entry(line.split("\t"), generations[0])
            entries[entry.number] = entry
    return Dictionary(generations, partial, entries)


def _entry(columns: Sequence[str], oldest: str) -> NumberedField:
    number, *others = columns
    base = [column.removeprefix("=") for column in others if column.startswith("=")]
    names = tuple(_name(column, oldest) for column in others if not column.startswith("="))
    return NumberedField(int(number), names, int(base[0]) if base else None)


def _name(column: str, oldest: str) -> FieldName:
    """A name from `NAME`, `NAME 4.4.0` (since then), `NAME 4.6.0-4.6.1` or `NAME -3.3.9` (until then)."""
    text, _, span = column.partition(" ")
    first, _, last = span.partition("-")
    return FieldName(text, first or oldest, last)
