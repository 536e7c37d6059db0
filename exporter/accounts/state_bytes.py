"""The ledger as bytes, so that counters survive a restart: a line with a version and a checksum, then JSON.

Each record is a row (records.py), and `columns` names the columns of each kind of record once. A column that the file
lacks gets its default. Version 4 lacks the moment when accounts began, version 5 the kernel's log, version 6 the moment
since when containers are idle, version 8 allocators' grants; version 7 has only the lowest power of models at rest.
Moments are written as the time before the last look, since the next process has another clock. The times of kernels up
to the last look are not written: the next process counts from 0. old_state.py reads older versions.

A reader skips amounts that it does not know, so a new amount needs no new version. Any other change of the form needs
one.

Tests: tests/accounts/test_state.py.
"""

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from operator import attrgetter
from typing import Any, NamedTuple

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import GpuState
from exporter.accounts.holders import HeldGpu, Holders
from exporter.accounts.idle_power import IdlePower
from exporter.accounts.ledger import Gaps, Ledger
from exporter.accounts.old_state import as_version_4
from exporter.accounts.records import RowReader, RowWriter
from exporter.model.accounts import GAPS, Gap
from exporter.model.devices import DeviceKey
from exporter.model.pages import Subject
from exporter.model.slices import Work, listed

_MAGIC = b"pod-gpu-metrics-exporter accounting"
VERSION = 9
_FIRST_BY_NAME = 4  # the first version whose records have names
_SUBJECT = ("uuid", "instance", "profile", "index", "device", "model", "host", "has_gpu_label")
_DEVICE = ("uuid", "instance")
_GAPS: Mapping[str, Gap] = {gap: gap for gap in GAPS}
# the limit of any number: values of a page (observation.py) are far below it, and their sums below the largest float
_MOST = 1e200
# After a longer time without an exporter, a container of the same name may be another container.
MOST_BY_NAME_NS = 300_000_000_000
_LEAST_STEP_NS = 1_000_000_000
_Json = Any  # what json writes and reads


class Boot(NamedTuple):
    """A start of the machine: its id (Linux' boot_id; "": not known), and its moment by the process' wall clock."""

    id: str = ""
    at_ns: int = 0


UNKNOWN_BOOT = Boot()


def dump_in_slices(ledger: Ledger, wall_ns: int, boot: Boot = UNKNOWN_BOOT) -> Work[bytes]:
    """The bytes of the ledger at this moment of the wall clock (ns since 1970). Nobody may count until this is done."""
    gaps = ledger.gaps
    holders = ledger.holders
    now_ns = gaps.noted_at_ns or 0
    rows = RowWriter(now_ns, ledger.entries)
    rows.columns.update(Subject=_SUBJECT, DeviceKey=_DEVICE)
    content = {
        "saved_ns": wall_ns,
        "boot": boot._asdict(),
        "look": ledger.look,
        "noted": gaps.noted_at_ns is not None,
        "counted": None if ledger.counted_at_ns is None else now_ns - ledger.counted_at_ns,
        "began": None if ledger.began_at_ns is None else now_ns - ledger.began_at_ns,
        "failing": gaps.failing,
        "gap_ns": gaps.ns,
        "shown": ledger.entries.shown,
        "models": holders.models,
        "memory_mib": [*holders.memory_mib.items()],
        "capacity": dict(holders.capacity),
        "allocated": dict(holders.allocated),
        "idle_powers": ledger.idle_powers,
        "kernel_sequence": ledger.kernel_sequence,
        "subjects": sorted(set(map(attrgetter(*_SUBJECT), holders.subjects))),
        "entries": (yield from listed(map(rows.row, ledger.entries))),
        "now": [*holders.held.values()],
        "gpus": ledger.states,
        # json.dumps asks for these last, when all of them have their numbers
        "held": lambda: [*map(rows.row, rows.held)],
        "devices": lambda: [*rows.devices],
        "columns": rows.columns,
    }
    yield
    body = json.dumps(content, check_circular=False, separators=(",", ":"), default=rows.json).encode()
    return b"%b %d %b\n%b" % (_MAGIC, VERSION, _checksum(VERSION, body), body)


def restore(data: bytes, wall_ns: int, at_ns: int, boot: Boot = UNKNOWN_BOOT) -> Ledger:
    """The ledger of the bytes of `dump_in_slices`.

    The time from its last look to `at_ns` is the time from the dump to `wall_ns`. Within a boot, steps of the wall
    clock do not count. After another boot all holders are forgotten; after a long time, holders without a uid are.
    Raises ValueError, with one line that says why: the data is damaged, of something else, or of a newer version.
    """
    head, _, body = data.partition(b"\n")
    title, _, checksum = head.rpartition(b" ")
    magic, _, version = title.rpartition(b" ")
    if magic != _MAGIC or not version.isdigit():
        raise ValueError("it is not the state of this exporter's accounting")
    if int(version) > VERSION:
        raise ValueError(f"it is of version {int(version)}, and this exporter knows versions up to {VERSION}")
    if _checksum(int(version), body) != checksum:
        raise ValueError("it is damaged: its checksum is another")
    try:
        content = json.loads(body, parse_int=_bounded, parse_float=_bounded, parse_constant=_bounded)
        content = content if int(version) >= _FIRST_BY_NAME else as_version_4(content)
        before = Boot(**content["boot"])
        since_ns = max(0, wall_ns - content["saved_ns"] - _step(before, boot))
        ledger = _read(content, at_ns - since_ns)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__} while reading it") from error
    is_booted = bool(before.id and boot.id and before.id != boot.id)
    if is_booted and ledger.kernel_sequence is not None:
        ledger.kernel_sequence = -1  # count the log of this boot from its beginning
    if is_booted or since_ns > MOST_BY_NAME_NS:
        _forget_holders(ledger, lambda entry: is_booted or not entry.uid)
    return ledger


def _step(before: Boot, now: Boot) -> int:
    """The time by which the wall clock was set forward within a boot.

    A step of less than a second is an error of measurement: 0.
    """
    step = now.at_ns - before.at_ns if before.id and before.id == now.id else 0
    return step if abs(step) >= _LEAST_STEP_NS else 0


def _forget_holders(ledger: Ledger, is_other: Callable[[Entry], bool]) -> None:
    """Take the time since the last look from holders that may be other containers by now (`is_other`)."""
    for entry in ledger.entries:
        if is_other(entry):
            entry.idle_since_at_ns = None
    ledger.holders.held = {uuid: held.without(is_other) for uuid, held in ledger.holders.held.items()}
    for state in ledger.states.values():
        for counters in state.counters:
            counters.held = counters.held.without(is_other)
    ledger.publish()


def _read(content: _Json, now_ns: int) -> Ledger:
    """The ledger of a file's content, whose last look is at `now_ns`."""
    columns = content["columns"]
    names = columns["DeviceKey"]
    devices = [DeviceKey(**dict(zip(names, map(str, row), strict=True))) for row in content["devices"]]
    rows = RowReader(now_ns, columns, devices)
    ledger = Ledger()
    ledger.look = int(content["look"])
    ledger.counted_at_ns = _moment(content["counted"], now_ns)
    ledger.began_at_ns = _moment(content.get("began"), now_ns)
    kernel_sequence = content.get("kernel_sequence")
    ledger.kernel_sequence = None if kernel_sequence is None else int(kernel_sequence)
    _read_gaps(ledger.gaps, content, now_ns)
    ledger.entries.shown = int(content["shown"])
    rows.entries = [rows.record(Entry, row) for row in content["entries"]]
    for entry in rows.entries:
        ledger.entries.put(entry)
    rows.held = [rows.record(HeldGpu, row) for row in content["held"]]
    _read_holders(ledger.holders, content, rows)
    for model, row in content.get("idle_powers", {}).items():
        ledger.idle_powers[str(model)] = rows.record(IdlePower, row)
    for model, (uj, ns) in content.get("least", {}).items():
        ledger.idle_powers[str(model)].lowest = (int(uj), max(1, int(ns)))
    ledger.states = {uuid: rows.record(GpuState, row) for uuid, row in content["gpus"].items()}
    ledger.note_suspicions()
    ledger.publish()
    return ledger


def _moment(ago_ns: _Json, now_ns: int) -> int | None:
    return None if ago_ns is None else now_ns - max(0, ago_ns)


def _read_gaps(gaps: Gaps, content: _Json, now_ns: int) -> None:
    gaps.noted_at_ns = now_ns if content["noted"] else None
    # if it is set, the time up to the next look is a gap
    gaps.failing = None if content["failing"] is None else _GAPS[content["failing"]]
    gaps.ns.update({reason: int(content["gap_ns"][reason]) for reason in gaps.ns})


def _read_holders(holders: Holders, content: _Json, rows: RowReader) -> None:
    held_now = [rows.held[number] for number in content["now"]]
    holders.held = {held.key.uuid: held for held in held_now}
    holders.models = {str(uuid): str(model) for uuid, model in content["models"].items()}
    holders.memory_mib = {rows.devices[number]: float(mib) for number, mib in content.get("memory_mib", ())}
    holders.capacity = {str(model): int(count) for model, count in content["capacity"].items()}
    holders.allocated = {str(model): float(part) for model, part in content["allocated"].items()}
    columns = rows.columns["Subject"]
    holders.subjects = {Subject(**dict(zip(columns, row, strict=True))): 1 for row in content["subjects"]}


def _checksum(version: int, body: bytes) -> bytes:
    return sha256(b"%d %b" % (version, body)).hexdigest().encode()


def _bounded(text: str) -> int | float:
    """A number so small that no sum leaves the range of floats, with its type.

    Raises ValueError for a larger number.
    """
    number = float(text)
    if not abs(number) < _MOST:
        raise ValueError("a number out of range")
    return int(text) if text.lstrip("-").isdecimal() else number
