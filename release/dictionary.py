"""DCGM's dictionary, from DCGM's own headers: `make dictionary HEADERS=FOLDER` writes exporter/dcgm/dictionary.tsv.

The folder has, for each generation that is new or to be read again (CONTRIBUTING.md, "A new release of DCGM"):

- `4.6.1.h`: DCGM's dcgm_fields.h, which says each field's number and names;
- `4.6.1.go`: go-dcgm's const_fields.go, which says what names the dcgm-exporter of that generation knows;
- `4.6.1.more`: what the header does not say: lines with a number, a name, and `=` with the number of the field that
  measures the same in another unit (go-dcgm's base_unit_fields_test.go has these pairs). Where a header cannot be read,
  these lines are what the generation adds to the one before it, and a `-` before the number takes a name away.

What the folder does not have stays as it is. Then the names in exporter/dcgm/table.json are made to agree, and what the
script cannot mend is printed: the exit code is 1 if there is any. Headers are facts to be read, and not kept.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from exporter.dcgm.dictionary import PREFIX, Dictionary, FieldName, NumberedField, read

ROOT = Path(__file__).resolve().parent.parent
DICTIONARY = ROOT / "exporter/dcgm/dictionary.tsv"
TABLE = ROOT / "exporter/dcgm/table.json"
KNOWN = ROOT / "tests/data/dcgm/go-dcgm-names.tsv"
_DEFINE = re.compile(r"#define\s+DCGM_FI_(\w+)\s+(?:DCGM_FI_)?(\w+)\s*(?://.*)?$", re.MULTILINE)
# names of DCGM's own bookkeeping, which are no fields
_NO_FIELD = re.compile(r"MAX_\w+|(\w+_)?(FIRST|LAST)(_\w+)?|INTERNAL_FIELDS_\w+")
_IN_A_MAP = re.compile(r'^\s+"(DCGM_FI_\w+|dcgm_\w+)":', re.MULTILINE)
# a name of table.json that no header has that could be read: an exporter that writes it is understood all the same
NOT_SEEN = ("DEV_GPU_BOARD_LIMIT_THROTTLE_SECONDS_TOTAL",)
_HEAD = """# DCGM's fields: number, names without DCGM_FI_ (the newest last), = the field that it is in base units.
# A name alone is in every generation; else its first, or -its last, or both. Made of DCGM's headers: make dictionary.
# + behind a generation: its header could not be read, so names that it has dropped may be here.
# generations: {generations}
"""
_KNOWN_HEAD = """# The names of fields that go-dcgm knows: versions, then the name. Made by make dictionary.
# dcgm-exporter ends at a name in its counters file that its go-dcgm does not know.
"""


@dataclass
class Generation:
    """The fields of one generation: the number of each name, and the names that are deprecated."""

    numbers: dict[str, int] = field(default_factory=dict)
    deprecated: set[str] = field(default_factory=set)


def from_header(text: str) -> Generation:
    """The fields of a dcgm_fields.h: `#define DCGM_FI_NAME 203`, or another name in place of the number."""
    defined = {name: value for name, value in _DEFINE.findall(text) if not _NO_FIELD.fullmatch(name)}
    generation = Generation()
    for name, value in defined.items():
        number = value
        while number in defined:
            number = defined[number]
        if number.isdigit():
            generation.numbers[name] = int(number)
            if not value.isdigit():
                generation.deprecated.add(name)
    return generation


def with_more(before: Generation, text: str) -> tuple[Generation, dict[int, int]]:
    """What a generation has if only what it adds is known, and which fields are others in their base units."""
    generation = Generation(dict(before.numbers), set(before.deprecated))
    base: dict[int, int] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        number, name, *more = line.split()
        if number.startswith("-"):
            del generation.numbers[name]
            by_number = [other for other, at in generation.numbers.items() if at == -int(number)]
            generation.deprecated -= set(by_number[-1:])
            continue
        others = {other for other, at in generation.numbers.items() if at == int(number) and other != name}
        generation.deprecated |= others
        generation.numbers[name] = int(number)
        base |= {int(number): int(other.removeprefix("=")) for other in more}
    return generation, base


def known_to_go(text: str) -> set[str]:
    """The whole names in a const_fields.go: the keys of its maps, in which dcgm-exporter looks a name up."""
    return set(_IN_A_MAP.findall(text))


def decoded(dictionary: Dictionary) -> dict[str, Generation]:
    """The generations of a dictionary."""
    generations = {}
    for version in dictionary.generations:
        generation = Generation()
        for entry in dictionary.entries.values():
            names = dictionary.names(entry, version)
            generation.numbers |= dict.fromkeys(names, entry.number)
            generation.deprecated |= set(names[:-1])
        generations[version] = generation
    return generations


def encoded(generations: Mapping[str, Generation], partial: Iterable[str], base: Mapping[int, int]) -> Dictionary:
    """A dictionary of these generations. Raises ValueError: the names of a field do not come and go in one order."""
    versions = sorted(generations, key=_in_order)
    numbers = sorted({number for generation in generations.values() for number in generation.numbers.values()})
    by_number: dict[int, dict[str, list[int]]] = {number: {} for number in numbers}
    for place, version in enumerate(versions):
        for name, number in generations[version].numbers.items():
            by_number[number].setdefault(name, []).append(place)
    entries = {
        number: NumberedField(number, tuple(_names(spans, versions, generations)), base.get(number))
        for number, spans in by_number.items()
    }
    return Dictionary(tuple(versions), frozenset(partial), entries)


def _names(
    spans: Mapping[str, list[int]], versions: list[str], generations: Mapping[str, Generation]
) -> Iterator[FieldName]:
    def age(name: str) -> tuple[int, bool]:
        newest = generations[versions[spans[name][-1]]]
        return spans[name][0], name not in newest.deprecated

    names = sorted(spans, key=age)
    for place, version in enumerate(versions):
        here = [name for name in names if place in spans[name]]
        own = [name for name in here if name not in generations[version].deprecated]
        if here and own != here[-1:]:
            raise ValueError(f"{version}: which of {', '.join(here)} is the field's own name? Their order does not say")
    for name in names:
        places = spans[name]
        if places != list(range(places[0], places[-1] + 1)):
            raise ValueError(f"{name} goes and comes again: dictionary.tsv has no form for that")
        last = "" if places[-1] == len(versions) - 1 else versions[places[-1]]
        yield FieldName(name, versions[places[0]], last)


def _in_order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def as_text(dictionary: Dictionary) -> str:
    """The dictionary as its file has it."""
    marked = [version + "+" * (version in dictionary.partial) for version in dictionary.generations]
    oldest = dictionary.generations[0]
    lines = [_HEAD.format(generations=" ".join(marked))]
    for entry in dictionary.entries.values():
        columns = [str(entry.number), *(_column(name, oldest) for name in entry.names)]
        if entry.in_base_unit_of is not None:
            columns.append(f"={entry.in_base_unit_of}")
        lines.append("\t".join(columns) + "\n")
    return "".join(lines)


def _column(name: FieldName, oldest: str) -> str:
    span = "" if name.first == oldest else name.first
    if name.last:
        span = f"{span}-{name.last}"
    return f"{name.text} {span}".rstrip()


def newest_name(dictionary: Dictionary, name: str) -> str:
    """What the newest generation calls the measurement that was called `name`: in its base unit, if there is such."""
    number = next(
        (entry.number for entry in dictionary.entries.values() if name in (other.text for other in entry.names)), None
    )
    if number is None:
        return name
    base = [entry for entry in dictionary.entries.values() if entry.in_base_unit_of == number]
    newest = dictionary.names(base[-1] if base else dictionary.entries[number], dictionary.generations[-1])
    return newest[-1] if newest else name


def disagreements(dictionary: Dictionary, known: Mapping[str, set[str]], row: Mapping[str, Any]) -> Iterator[str]:
    """What a row of table.json says otherwise than the headers, and than go-dcgm (`known`: version → names)."""
    name = row["name"]
    if name.startswith("EXP_"):  # dcgm-exporter's own families
        return
    numbers = {other.text: entry.number for entry in dictionary.entries.values() for other in entry.names}
    newer = row["newer"][0] if "newer" in row else name
    before = [row["before"]] if "before" in row else []
    others = [text.removeprefix(PREFIX) for text in (*row.get("also", ()), *row.get("also_newer", ()))]
    dcgms = [text for text in others if text.isupper() and text not in NOT_SEEN]
    yield from (f"{name}: no header has {other}" for other in (name, *dcgms, *before) if other not in numbers)
    if name in numbers and before and numbers.get(before[0]) != numbers[name]:
        yield f"{name}: {before[0]} is no name of field {numbers[name]}"
    expected = newest_name(dictionary, name)
    if newer != expected:
        yield f"{name}: the newest header calls it {expected}, not {newer}"
    if row.get("is_in_file", True):
        yield from _odd_ages(known, row)


def _odd_ages(known: Mapping[str, set[str]], row: Mapping[str, Any]) -> Iterator[str]:
    """`since` of a row, held against the names that each go-dcgm knows: those of newer versions, and no older one."""
    name = row["name"]
    since = row.get("since", "")
    for version, names in known.items():
        is_known = PREFIX + name in names
        if not is_known and (not since or _in_order(version) >= _in_order(since)):
            yield f"{name}: go-dcgm {version} does not know it, so `since` is wrong"
    oldest = next(iter(known.values()), set())
    if since and PREFIX + name in oldest:
        yield f"{name}: every go-dcgm knows it, so `since` is wrong"


def mended(dictionary: Dictionary, text: str) -> str:
    """table.json with the newest names of its fields. A name that only changed keeps its unit."""
    lines = []
    for line in text.splitlines():
        content = line.strip().removesuffix(",")
        if content.startswith('{"name":'):
            row = json.loads(content)
            with_newest = _with_newest(dictionary, row)
            if with_newest != row:
                lines.append(line.replace(content, json.dumps(with_newest, ensure_ascii=False)))
                continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def _with_newest(dictionary: Dictionary, row: Mapping[str, Any]) -> dict[str, Any]:
    newest = newest_name(dictionary, row["name"])
    if "newer" in row:
        return {**row, "newer": [newest, row["newer"][1]]}
    if newest == row["name"]:
        return dict(row)
    number = dictionary.all_names(dictionary.generations[-1]).get(newest)
    if number is not None and dictionary.entries[number].in_base_unit_of is not None:
        return dict(row)  # its unit is for a person to say
    written: dict[str, Any] = {}
    for key, value in row.items():
        written[key] = value
        if key == ("unit" if "unit" in row else "help"):
            written["newer"] = [newest, row.get("unit", "NUMBER")]
    return written


def rows(text: str) -> Iterator[Mapping[str, Any]]:
    """The rows of table.json."""
    for group in json.loads(text).values():
        yield from group


def _with_folder(dictionary: Dictionary, folder: Path) -> Dictionary:
    generations = decoded(dictionary)
    partial = set(dictionary.partial)
    base = {
        entry.number: entry.in_base_unit_of
        for entry in dictionary.entries.values()
        if entry.in_base_unit_of is not None
    }
    for path in folder.glob("*.h"):
        generations[path.stem] = from_header(path.read_text())
        partial.discard(path.stem)
    for path in sorted(folder.glob("*.more"), key=lambda path: _in_order(path.stem)):
        version = path.stem
        if not path.with_suffix(".h").exists():
            partial.add(version)
            version = max((other for other in generations if _in_order(other) < _in_order(version)), key=_in_order)
        generations[path.stem], more = with_more(generations[version], path.read_text())
        base |= more
    return encoded(generations, partial, base)


def known_names(text: str) -> dict[str, set[str]]:
    """The names that each go-dcgm knows, the oldest version first, from go-dcgm-names.tsv."""
    names_by_version: dict[str, set[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            versions, name = line.split("\t")
            for version in versions.split(","):
                names_by_version.setdefault(version, set()).add(name)
    return dict(sorted(names_by_version.items(), key=lambda of_version: _in_order(of_version[0])))


def _known_text(names_by_version: Mapping[str, set[str]]) -> str:
    names = sorted(set().union(*names_by_version.values()))
    lines = [
        f"{','.join(version for version in names_by_version if name in names_by_version[version])}\t{name}\n"
        for name in names
    ]
    return "".join((_KNOWN_HEAD, *lines))


def main(arguments: list[str]) -> int:
    """Read the folder, write the files, and print what they disagree on."""
    dictionary = read(DICTIONARY.read_text().splitlines())
    names_by_version = known_names(KNOWN.read_text())
    for folder in map(Path, arguments):
        dictionary = _with_folder(dictionary, folder)
        names_by_version |= {path.stem: known_to_go(path.read_text()) for path in folder.glob("*.go")}
        names_by_version = dict(sorted(names_by_version.items(), key=lambda of_version: _in_order(of_version[0])))
        DICTIONARY.write_text(as_text(dictionary))
        KNOWN.write_text(_known_text(names_by_version))
        TABLE.write_text(mended(dictionary, TABLE.read_text()))
    complaints = [
        complaint for row in rows(TABLE.read_text()) for complaint in disagreements(dictionary, names_by_version, row)
    ]
    sys.stdout.write("\n".join(complaints or ["table.json agrees with DCGM's headers"]) + "\n")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
