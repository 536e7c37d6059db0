"""The ledger as bytes, so that counters survive a restart: a line with a version and a checksum, then JSON.

Moments are kept as the time before the last look, since the clock of the next process is another one. How long kernels
ran up to the last look is not kept: the next process counts from 0. Version 1 has no stretches, version 2 does not know
of pages that are away, nor when the machine was booted.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from exporter.accounting.entries import Entry
from exporter.accounting.held import NO_ENTRY, HeldDevice, HeldGpu
from exporter.accounting.ledger import Ledger
from exporter.accounting.observation import Seen
from exporter.accounting.stretches import Reading, Stretch
from exporter.accounting.turn import GpuState, LastXids
from exporter.model.accounts import GAPS, Gap
from exporter.model.devices import DeviceKey
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.slices import Work, at_once, listed

_MAGIC, VERSION = b"pod-gpu-metrics-exporter accounting", 3
_SEEN = ("power", "activity", "utilization", "energy", "violations")  # of the last look; version 1 has the first three
_SUBJECT = ("uuid", "instance", "profile", "index", "device", "model", "host", "has_gpu_label")
_GAPS: Mapping[str, Gap] = {gap: gap for gap in GAPS}
# of any number: what a page may say (amounts.py) is far below, and so are sums of it below the largest float
_MOST = 1e200
# After a longer time without an exporter, a name alone does not say that a container is the one of before.
MOST_BY_NAME_NS = 300_000_000_000
_LEAST_STEP_NS = 1_000_000_000
_Json = Any  # what json writes and reads


class Boot(NamedTuple):
    """A start of the machine: its id (Linux' boot_id, "" for unknown), and its moment by the process' wall clock.

    Two processes of one boot know by this how far the wall clock was set forward or back between them.
    """

    id: str = ""
    at_ns: int = 0


UNKNOWN_BOOT = Boot()


def dump(ledger: Ledger, wall_ns: int, boot: Boot = UNKNOWN_BOOT) -> bytes:
    """The ledger as it stands at this moment of the wall clock (nanoseconds since 1970)."""
    return at_once(dump_in_slices(ledger, wall_ns, boot))


def dump_in_slices(ledger: Ledger, wall_ns: int, boot: Boot = UNKNOWN_BOOT) -> Work[bytes]:
    """The same; nothing may be counted meanwhile."""
    said = {**(yield from _Writer(ledger).ledger(wall_ns)), "boot": boot}
    yield
    body = json.dumps(said, separators=(",", ":")).encode()
    return b"%b %d %b\n%b" % (_MAGIC, VERSION, _checksum(VERSION, body), body)


def restore(data: bytes, wall_ns: int, at_ns: int, boot: Boot = UNKNOWN_BOOT) -> Ledger:
    """The ledger of `dump`. Its last look lies as long before `at_ns` as it was dumped before `wall_ns`.

    That is reckoned without the steps of the wall clock, where both are of one boot. After another boot nobody holds
    what was held before; after a long time, a container that has only a name does not.

    Raises:
        ValueError: the data is damaged, of something else or of a newer version; one line says which.
    """
    head, _, body = data.partition(b"\n")
    *magic, version, checksum = head.split(b" ") if head.count(b" ") > 1 else (b"", b"", b"")
    if b" ".join(magic) != _MAGIC or not version.isdigit():
        raise ValueError("it is not the state of this exporter's accounting")
    if int(version) > VERSION:
        raise ValueError(f"it is of version {int(version)}, and this exporter knows versions up to {VERSION}")
    if _checksum(int(version), body) != checksum:
        raise ValueError("it is damaged: its checksum is another")
    try:
        said = json.loads(body, parse_int=_bounded, parse_float=_bounded, parse_constant=_bounded)
        before = Boot(*said.get("boot", UNKNOWN_BOOT))
        since_ns = max(0, wall_ns - said["saved_ns"] - _step(before, boot))
        ledger = _Reader(at_ns - since_ns).ledger(said)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ValueError(f"it is damaged: {type(error).__name__} while reading it") from error
    is_booted = bool(before.id and boot.id and before.id != boot.id)
    if is_booted or since_ns > MOST_BY_NAME_NS:
        _forget_hands(ledger, lambda entry: is_booted or not entry.uid)
    return ledger


def _step(before: Boot, now: Boot) -> int:
    """How far the wall clock was set forward within a boot. Less than a second is the time between two looks at it."""
    step = now.at_ns - before.at_ns if before.id and before.id == now.id else 0
    return step if abs(step) >= _LEAST_STEP_NS else 0


def _forget_hands(ledger: Ledger, is_other: Callable[[Entry], bool]) -> None:
    """Let those who held something at the last look, and may be others by now, have nothing of the time since."""
    ledger.holders.held = {uuid: held.without(is_other) for uuid, held in ledger.holders.held.items()}
    for state in ledger.states.values():
        for reading in (state.page, state.energy, state.violations):
            if reading is not None:
                reading.held = reading.held.without(is_other)


def _checksum(version: int, body: bytes) -> bytes:
    return sha256(b"%d %b" % (version, body)).hexdigest().encode()


def _bounded(text: str) -> int | float:
    """A number that no sum takes out of the range of floats, with its type.

    Raises:
        ValueError: it is larger, or none.
    """
    number = float(text)
    if not abs(number) < _MOST:
        raise ValueError("a number out of range")
    return int(text) if text.lstrip("-").isdecimal() else number


class _Writer:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._number = {entry: number for number, entry in enumerate(ledger.entries)}
        self._now = ledger.gaps.noted_at_ns or 0
        self._held: dict[HeldGpu, int] = {}

    def ledger(self, wall_ns: int) -> Work[_Json]:
        ledger, gaps = self._ledger, self._ledger.gaps
        return {
            "saved_ns": wall_ns,
            "look": ledger.look,
            "noted": gaps.noted_at_ns is not None,
            "counted": self._ago(ledger.counted_at_ns),
            "failing": gaps.failing,
            "gap_ns": gaps.ns,
            "shown": ledger.entries.shown,
            "entries": (yield from listed(map(self._entry, ledger.entries))),
            "models": ledger.holders.models,
            "capacity": dict(ledger.holders.capacity),
            "allocated": dict(ledger.holders.allocated),
            "least": ledger.least,
            "subjects": sorted({tuple(getattr(of, name) for name in _SUBJECT) for of in ledger.holders.subjects}),
            "now": [self._held_number(held) for held in ledger.holders.held.values()],
            "gpus": dict((yield from listed((uuid, self._state(state)) for uuid, state in ledger.states.items()))),
            "held": (yield from listed(map(self._held_gpu, self._held))),  # last: by now all are numbered
        }

    def _ago(self, at_ns: int | None) -> int | None:
        return None if at_ns is None else self._now - at_ns

    def _entry(self, entry: Entry) -> _Json:
        owner = entry.owner
        return [
            None if owner is None else [owner.namespace, owner.pod, owner.container],
            entry.uid,
            [entry.device.uuid, entry.device.instance],
            entry.labels,
            entry.ratio,
            entry.allocated_ns,
            entry.active_ns,
            entry.idle_ns,
            entry.energy_uj,
            entry.observed_ns,
            entry.xids,
            entry.throttled_ns,
            self._ago(entry.gone_at_ns),
            entry.shown_before,
        ]

    def _held_number(self, held: HeldGpu) -> int:
        return self._held.setdefault(held, len(self._held))

    def _held_gpu(self, held: HeldGpu) -> _Json:
        return [
            held.key.uuid,
            held.whole,
            [
                [
                    device.key.instance,
                    device.slices,
                    device.is_sampled,
                    # one that was dropped meanwhile is nobody's number
                    [[self._number.get(entry, -1), part] for entry, part in device.holders],
                    device.part,
                    device.is_shared,
                ]
                for device in held.devices
            ],
        ]

    def _state(self, state: GpuState) -> _Json:
        xids = state.xids
        return {
            "look": state.look,
            "seen": {name: getattr(state.seen, name) for name in _SEEN},
            "reasons": state.seen.reasons,
            "page": self._reading(state.page),
            "carried": state.carried,
            "hands": [None if held is None else self._held_number(held) for held in (state.steady, state.before)],
            "energy": self._reading(state.energy),
            "rows_are_own": state.rows_are_own,
            "violations": self._reading(state.violations),
            "xids": None
            if xids is None
            else [
                sorted(xids.values),
                _pairs(xids.counts),
                _pairs(xids.totals),
                None if xids.counted is None else [xids.counted[0], self._ago(xids.counted[1])],
            ],
        }

    def _reading(self, reading: Reading | None) -> _Json:
        if reading is None:
            return None
        return [
            self._held_number(reading.held),
            reading.look,
            self._ago(reading.at_ns),
            reading.values,
            [
                [self._held_number(stretch.held), stretch.ns, stretch.is_gap, dict(stretch.kernels), stretch.is_blind]
                for stretch in reading.stretches
            ],
            reading.is_away,
        ]


class _Reader:
    def __init__(self, now_ns: int) -> None:
        self._now = now_ns
        self._entries: list[Entry] = []
        self._held: list[HeldGpu] = []

    def ledger(self, said: _Json) -> Ledger:
        ledger = Ledger()
        ledger.look = int(said["look"])
        ledger.counted_at_ns = self._moment(said["counted"])
        gaps = ledger.gaps
        gaps.noted_at_ns = self._now if said["noted"] else None
        gaps.failing = None if said["failing"] is None else _GAPS[said["failing"]]  # then up to the next look is a gap
        gaps.ns.update({reason: int(said["gap_ns"][reason]) for reason in gaps.ns})
        ledger.entries.shown = int(said["shown"])
        self._entries = [self._entry(each) for each in said["entries"]]
        for entry in self._entries:
            ledger.entries.put(entry)
        self._held = [self._held_gpu(*each) for each in said["held"]]
        ledger.holders.resume(
            [self._held[number] for number in said["now"]],
            {str(uuid): str(model) for uuid, model in said["models"].items()},
            _amounts(said["capacity"]),
            {str(model): float(part) for model, part in said["allocated"].items()},
        )
        ledger.holders.subjects = {
            Subject(**dict(zip(_SUBJECT, of, strict=True))): 1 for of in said.get("subjects", ())
        }
        ledger.least = {str(model): (int(uj), max(1, int(ns))) for model, (uj, ns) in said.get("least", {}).items()}
        ledger.states = {uuid: self._state(each) for uuid, each in said["gpus"].items()}
        ledger.publish()
        return ledger

    def _moment(self, ago_ns: int | None) -> int | None:
        return None if ago_ns is None else self._now - max(0, ago_ns)

    def _entry(self, said: _Json) -> Entry:
        owner, uid, device, labels, ratio, *amounts, xids, throttled, gone, shown_before = said
        allocated, active, idle, energy, *more = (None if amount is None else int(amount) for amount in amounts)
        return Entry(
            owner=None if owner is None else _owner(*owner),
            uid=str(uid),
            device=DeviceKey(uuid=str(device[0]), instance=str(device[1])),
            labels=tuple((str(name), str(value)) for name, value in labels),
            ratio=None if ratio is None else float(ratio),
            allocated_ns=allocated,
            active_ns=active,
            idle_ns=idle,
            energy_uj=energy,
            # until version 2, all that was held was taken for observed
            observed_ns=more[0] if more else allocated if active is not None else None,
            xids=_amounts(xids),
            throttled_ns=_amounts(throttled),
            gone_at_ns=self._moment(gone),
            shown_before=int(shown_before),
        )

    def _held_gpu(self, uuid: str, whole: int, devices: Iterable[Sequence[_Json]]) -> HeldGpu:
        return HeldGpu(
            DeviceKey(uuid=str(uuid)),
            int(whole),
            tuple(
                HeldDevice(
                    DeviceKey(uuid=str(uuid), instance=str(instance)),
                    int(slices),
                    bool(is_sampled),
                    tuple((self._holder(int(number)), int(part)) for number, part in holders),
                    *_all_and_shared(*more),
                )
                for instance, slices, is_sampled, holders, *more in devices
            ),
        )

    def _holder(self, number: int) -> Entry:
        return self._entries[number] if number >= 0 else NO_ENTRY

    def _state(self, said: _Json) -> GpuState:
        xids = said["xids"]
        seen = Seen(reasons=said["reasons"])
        for name in _SEEN:
            setattr(seen, name, _amounts(said["seen"].get(name, {})))
        steady, before = (None if of is None else self._held[of] for of in said.get("hands", (None, None)))
        return GpuState(
            look=int(said["look"]),
            seen=seen,
            page=self._reading(said.get("page")),
            carried=_amounts(said.get("carried", {})),
            steady=steady,
            before=before,
            energy=self._reading(said["energy"]),
            rows_are_own=bool(said["rows_are_own"]),
            violations=self._reading(said["violations"]),
            xids=None if xids is None else self._xids(*xids),
        )

    def _xids(self, values: Iterable[int], counts: _Json, totals: _Json, counted: _Json) -> LastXids:
        return LastXids(
            frozenset(map(int, values)),
            None if counts is None else dict(counts),
            None if totals is None else dict(totals),
            None if counted is None else (int(counted[0]), self._now - int(counted[1])),
        )

    def _reading(self, said: _Json) -> Reading | None:
        if said is None:
            return None
        held, look, ago_ns, values, *more = said
        reading = Reading(self._held[held], int(look), self._now - int(ago_ns), _amounts(values))
        reading.is_away = any(more[1:])
        for of, ns, is_gap, kernels, *is_blind in more[0] if more else ():
            times = {str(instance): [int(each) for each in of_device] for instance, of_device in kernels.items()}
            reading.add(Stretch(self._held[of], int(ns), bool(is_gap), times, any(is_blind)))
        return reading


def _owner(namespace: str, pod: str, container: str) -> Owner:
    return Owner(namespace=str(namespace), pod=str(pod), container=str(container))


def _all_and_shared(part: int = 0, is_shared: bool = False) -> tuple[int, bool]:
    return int(part), bool(is_shared)


def _amounts(said: _Json) -> dict[str, int]:
    return {str(name): int(amount) for name, amount in said.items()}


def _pairs(counts: Mapping[int, int] | None) -> _Json:
    """A mapping as pairs: in JSON, keys are texts."""
    return None if counts is None else sorted(counts.items())
