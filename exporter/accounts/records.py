"""The conversion of the ledger's records to rows of JSON and back. A record is a dataclass; its fields' types decide.

Many records share entries, GPUs with their holders, and devices, and refer to them by number. A moment (a field whose
name ends in at_ns) is written as the time before the last look.

Tests: tests/accounts/test_state.py.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from itertools import count
from operator import attrgetter
from types import FunctionType, MappingProxyType, NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin

from exporter.accounts.amounts import new_amounts
from exporter.accounts.entries import Entry
from exporter.accounts.gpu import AmountOfGpu
from exporter.accounts.holders import NO_ENTRY, HeldGpu
from exporter.model.devices import DeviceKey

_MOMENT = "at_ns"
_DROPPED = -1  # stands for an entry that was dropped meanwhile
_Record = Any
_Row = Sequence[Any]
_Hint = Any  # a type, as it is annotated


@cache
def columns_of(kind: type) -> Mapping[str, _Hint]:
    """The columns of a kind of record, with their types: the fields of its constructor."""
    return {field.name: field.type for field in fields(kind) if field.init}


class RowWriter:
    """A maker of rows.

    Records within a record become rows by `json`, which json.dumps calls for objects without a JSON form. `entries`,
    `held` and `devices` have the numbers that were given so far, `columns` the columns of each kind of record.
    """

    def __init__(self, now_ns: int, entries: Iterable[Entry]) -> None:
        self.now_ns = now_ns
        self.entries: Mapping[Entry, int] = {entry: number for number, entry in enumerate(entries)}
        self.held: Mapping[HeldGpu, int] = defaultdict(count().__next__)
        self.devices: Mapping[tuple[str, str], int] = defaultdict(count().__next__)
        self.columns: dict[str, Sequence[str]] = {}
        self._writers: dict[type, _RowWriter] = {}

    def row(self, record: _Record) -> _Row:
        """A record as a row."""
        kind: type = type(record)
        if kind not in self._writers:
            self._writers[kind] = _row_writer(kind)
            self.columns[kind.__name__] = [*columns_of(kind)]
        values_of, converters = self._writers[kind]
        values = values_of(record)
        if converters:
            values = [*values]
            for place, convert in converters:
                if values[place] is not None:
                    values[place] = convert(self, values[place])
        return values

    def json(self, value: object) -> object:
        """The JSON form of a value: a record's row or, if many records share the value, its number."""
        return _WRITERS.get(type(value), RowWriter.row)(self, value)


_Write = Callable[[RowWriter, Any], object]
_RowWriter = tuple[Callable[[_Record], _Row], Sequence[tuple[int, _Write]]]
_WRITERS: Mapping[type, _Write] = {
    Entry: lambda rows, entry: rows.entries.get(entry, _DROPPED),
    HeldGpu: lambda rows, held: rows.held[held],
    DeviceKey: lambda rows, device: rows.devices[device.uuid, device.instance],
    frozenset: lambda _, values: sorted(values),
    FunctionType: lambda _, make: make(),
    MappingProxyType: lambda _, values: dict(values),
}


@cache
def _row_writer(kind: type) -> _RowWriter:
    """A function that takes the values from a record, and converters, by place, for values without a JSON type."""
    columns = columns_of(kind)
    converters: list[tuple[int, _Write]] = []
    for place, (name, hint) in enumerate(columns.items()):
        if name.endswith(_MOMENT):
            converters.append((place, lambda rows, at_ns: rows.now_ns - at_ns))
        elif dict[int, int] in (hint, *get_args(hint)):  # pairs, since keys of a JSON object are texts
            converters.append((place, lambda _, counts: sorted(counts.items())))
    return _values_of([*columns]), converters


def _values_of(names: Sequence[str]) -> Callable[[_Record], _Row]:
    """A function that makes a row of a record's values. attrgetter makes one of two names or more."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: [getattr(record, name) for name in names]


class RowReader:
    """A maker of records from rows. `columns` are by kind of record; `entries`, `held` and `devices` are by number."""

    def __init__(self, now_ns: int, columns: Mapping[str, Sequence[str]], devices: Sequence[DeviceKey]) -> None:
        self.now_ns = now_ns
        self.columns = columns
        self.devices = devices
        self.entries: Sequence[Entry] = ()
        self.held: Sequence[HeldGpu] = ()

    def record(self, kind: type, row: _Row) -> _Record:
        """The record of this row."""
        hints = columns_of(kind)
        values: dict[str, Any] = {}
        for name, value in zip(self.columns[kind.__name__], row, strict=True):
            values[name] = _reader(hints[name], name)(self, value)
        return kind(**values)

    def amounts(self, rows: Mapping[str, _Row]) -> dict[str, AmountOfGpu]:
        """The state of each amount for a GPU; a new state if the file lacks the amount."""
        return {
            name: self.record(type(amount), rows[name]) if name in rows else amount
            for name, amount in new_amounts().items()
        }


_Read = Callable[[RowReader, Any], Any]
_READERS: Mapping[_Hint, _Read] = {
    Entry: lambda rows, number: rows.entries[number] if number >= 0 else NO_ENTRY,
    HeldGpu: lambda rows, number: rows.held[number],
    DeviceKey: lambda rows, number: rows.devices[number],
    dict[str, AmountOfGpu]: RowReader.amounts,
}


@cache
def _reader(hint: _Hint, name: str = "") -> _Read:
    """A function that makes values of this type from JSON, in a column of this name."""
    origin: _Hint = get_origin(hint)
    kind = hint if origin is None else origin
    if kind is UnionType:
        return _reader_of_optional(hint, name)
    if name.endswith(_MOMENT):
        return lambda rows, ago_ns: rows.now_ns - max(0, int(ago_ns))
    if hint in _READERS:
        return _READERS[hint]
    if is_dataclass(kind):
        return lambda rows, row: rows.record(kind, row)  # type: ignore[arg-type]
    # the holders of a `Device` are entries
    inner = [_reader(Entry if isinstance(item, TypeVar) else item) for item in get_args(hint) if item is not ...]
    if not inner:
        return lambda _, value: kind(value)  # int, float, str or bool
    if issubclass(kind, Mapping):
        return _reader_of_mapping(inner[0], inner[1])
    if len(inner) > 1:
        return lambda rows, row: tuple(read(rows, value) for read, value in zip(inner, row, strict=True))
    make = kind if kind in (list, frozenset) else tuple
    read_one = inner[0]
    return lambda rows, values: make(read_one(rows, value) for value in values)


def _reader_of_optional(hint: _Hint, name: str) -> _Read:
    read = _reader(next(kind for kind in get_args(hint) if kind is not NoneType), name)
    return lambda rows, value: None if value is None else read(rows, value)


def _reader_of_mapping(read_key: _Read, read_value: _Read) -> _Read:
    def read(rows: RowReader, values: Any) -> Mapping[Any, Any]:  # noqa: ANN401 - an object of JSON, or pairs
        pairs = values.items() if isinstance(values, Mapping) else values
        return {read_key(rows, key): read_value(rows, value) for key, value in pairs}

    return read
