"""The kernels that ran between two looks, as NVML measures them, until a page has the device's activity of that time.

NVML measures a container from its first look on, and half of the time before that (`SmTimes`). After the last look that
saw the container it measures nothing. The container is assumed to go on at its last pace, for so long that its time
before the first look and its time after the last look are together as long as a look, which is their mean.

dcgm-exporter reads a GPU at some time between two looks, on average midway. So half of the kernels between the last two
looks belong to the page that the last look saw, and half belong to the next page.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounts.entries import Entry
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.stretches import FAINT_NS, MOST_UNREAD_NS, NOT_MEASURED, Kernels, SmNs, Times
from exporter.model.devices import DeviceKey

# The nanoseconds in which kernels ran, by container. The key None is processes of no holder.
Ran = Mapping[Entry | None, int]
_NOBODYS: Ran = {}
_Holding = Mapping[str, HeldGpu]


@dataclass(slots=True, eq=False)
class Waiting:
    """The kernels of a device that no page covers yet, for an amount. `last` are the kernels since the look before.

    `doubled` has twice the time of earlier kernels. The `counted` containers' part of `last` is counted by now.
    `is_known` is False if the kernels of some look are not known, and before the first page.
    """

    doubled: Counter[Entry | None] = field(default_factory=Counter)
    last: Ran = field(default_factory=lambda: _NOBODYS)
    counted: Collection[Entry | None] = ()
    is_known: bool = False

    def add(self, ran: Ran | None) -> None:
        """Add the kernels since the look before; None if they are not known."""
        if ran is None:
            self.is_known = False
            return
        for entry, ns in self.last.items():
            self.doubled[entry] += ns if entry in self.counted else 2 * ns
        self.last = ran
        self.counted = ()

    def take(self) -> Ran | None:
        """The kernels of the page that this look saw first, as weights; None if they are not known, or none ran."""
        of_last = {entry: ns for entry, ns in self.last.items() if entry not in self.counted}
        of_page = self.doubled + Counter(of_last)
        is_known = self.is_known
        self.doubled = Counter(self.last)
        self.last = _NOBODYS
        self.counted = ()
        self.is_known = True
        return of_page if is_known and of_page else None

    def skip(self, counted: Collection[Entry | None]) -> None:
        """Note that all kernels up to the look before are counted, and these containers' up to this look."""
        self.doubled = Counter()
        self.counted = counted
        self.is_known = True


@dataclass(slots=True, eq=False)
class KernelsOfGpu:
    """The kernels of a GPU that no page covers yet, by amount and GPU_I_ID. `ran` are kernels since the look before."""

    ran: Mapping[str, Ran] = field(default_factory=dict)
    activity: dict[str, Waiting] = field(default_factory=dict)
    energy: dict[str, Waiting] = field(default_factory=dict)

    def note(self, ran: Mapping[str, Ran]) -> None:
        """Note the kernels since the look before. For a device that `ran` lacks, they are unknown."""
        self.ran = ran
        for instance in {*ran, *self.activity}:
            for waiting in (self.activity, self.energy):
                waiting.setdefault(instance, Waiting()).add(ran.get(instance))

    def lose(self) -> None:
        """Note a look that saw no page: no page tells of the kernels up to it."""
        for waiting in (*self.activity.values(), *self.energy.values()):
            waiting.add(None)


NO_KERNELS_OF_GPU = KernelsOfGpu()


class _Pace(NamedTuple):
    """The time for which a container's kernels ran between two looks `of_ns` apart, and before its first look.

    `first_ns` is None if no look saw the container come.
    """

    ns: int
    of_ns: int
    first_ns: int | None

    def after_last_look(self, step_ns: int) -> int:
        """The likely time of its kernels after the last look that saw it; the next look comes `step_ns` later."""
        of_step_ns = self.ns * step_ns // self.of_ns
        if self.first_ns is None:
            return of_step_ns // 2
        return max(0, of_step_ns - self.first_ns)


_Paces = Mapping[tuple[DeviceKey, Entry], _Pace]


@dataclass(slots=True, eq=False)
class _DeviceOfLooks:
    """The holders of a device at the last look and at this one. `ran` finds the `paces` of this look's holders."""

    key: DeviceKey
    before: Collection[Entry]
    after: Collection[Entry]
    paces: dict[tuple[DeviceKey, Entry], _Pace] = field(default_factory=dict)

    def ran(self, last: Times, now: Times, step_ns: int, paces: _Paces) -> Ran | None:
        """The kernels since the last look, by NVML's times at both looks; None if they are not known."""
        nobodys_ns = 0
        if last and now:
            nobodys_ns = max(0, now.get(None, 0) - last.get(None, 0))
        ran: dict[Entry | None, int] = {None: nobodys_ns}
        for entry in self.after:
            ns = self._since(entry, last, now)
            if ns is None or not 0 <= ns <= step_ns:
                return None
            ran[entry] = ns
            self._note_pace(entry, ns, step_ns, paces.get((self.key, entry)))
        for entry in self.before:
            if entry not in ran:
                pace = paces.get((self.key, entry))
                if pace is None:
                    return None
                ran[entry] = pace.after_last_look(step_ns)
        return ran

    def _since(self, entry: Entry, last: Times, now: Times) -> int | None:
        owner = entry.owner
        has_come = entry not in self.before
        if owner not in now or not (has_come or owner in last):
            return None
        return now[owner] - last.get(owner, 0)

    def _note_pace(self, entry: Entry, ns: int, step_ns: int, last: _Pace | None) -> None:
        first_ns = last.first_ns if last is not None else None
        pace = _Pace(ns, step_ns, first_ns)
        if entry not in self.before:
            # on average it held the device for half of this time
            pace = _Pace(2 * ns, step_ns, ns)
        self.paces[self.key, entry] = pace


class KernelTimes:
    """Remembers NVML's measurement at the last look: `Measured.sm_ns`, which begins at 0 when the exporter starts.

    NVML may have no new sample since the last look. Then the proportion of the last sample holds for two minutes.
    """

    def __init__(self) -> None:
        self._last = NOT_MEASURED
        self._newest: dict[DeviceKey, tuple[int, Sequence[object], list[int]]] = {}
        self._paces: dict[tuple[DeviceKey, Entry], _Pace] = {}
        self._gpus: dict[str, KernelsOfGpu] = {}

    def of_gpu(self, uuid: str) -> KernelsOfGpu:
        """The kernels of a GPU that no page has told yet."""
        return self._gpus.get(uuid, NO_KERNELS_OF_GPU)

    def since_last(
        self, now: SmNs, before: _Holding, after: _Holding, at_ns: int, step_ns: int | None
    ) -> Mapping[str, Kernels]:
        """The times for which kernels of the last look's holders ran since that look, by GPU.

        `now` is the measurement of this look, at `at_ns`; it is empty if nothing is measured. `before` are the holders
        of the last look, `after` the holders of this look. `step_ns` is the time between the looks; None for a gap.
        """
        last = self._last
        self._last = now
        if not last or not now:
            self._newest.clear()
            self._paces.clear()
            self._gpus.clear()
            return {}
        self._note_ran(last, now, before, after, step_ns)
        if step_ns is None:
            return {}
        times_of: dict[str, dict[str, list[int]]] = {}
        for key in now.keys() & last.keys():
            device = _device_of(before, key)
            if device is None or not device.holders:
                continue
            times = _grown(device, last[key], now[key])
            if times:
                # the part counts, too, since the same number out of another whole is another share
                shares = (device.part, device.holders)
                times_of.setdefault(key.uuid, {})[key.instance] = self._with_newest(key, shares, times, at_ns)
        return times_of

    def _note_ran(self, last: SmNs, now: SmNs, before: _Holding, after: _Holding, step_ns: int | None) -> None:
        """Note the kernels of each GPU since the last look, until a page covers them."""
        paces = self._paces
        self._paces = {}
        gpus: dict[str, KernelsOfGpu] = {}
        for uuid, held in after.items():
            ran: dict[str, Ran] = {}
            for device in _devices(before.get(uuid), held) if step_ns else ():
                key = device.key
                of_device = device.ran(last.get(key, {}), now.get(key, {}), step_ns or 0, paces)
                if of_device is not None:
                    ran[key.instance] = of_device
                    self._paces |= device.paces
            if ran or uuid in self._gpus:
                gpus[uuid] = self._gpus.get(uuid) or KernelsOfGpu()
                gpus[uuid].note(ran)
        self._gpus = gpus

    def _with_newest(self, key: DeviceKey, shares: Sequence[object], times: list[int], at_ns: int) -> list[int]:
        """The times.

        Without a new sample, traces of time in the last sample's proportion, which any new sample outweighs.
        """
        if any(times):
            self._newest[key] = at_ns, shares, times
            return times
        since_ns, holders, newest = self._newest.get(key, (at_ns, (), times))
        if holders != shares or at_ns - since_ns >= MOST_UNREAD_NS:
            return times
        return [time * FAINT_NS // sum(newest) for time in newest]


def _device_of(held: _Holding, key: DeviceKey) -> Device[Entry] | None:
    gpu = held.get(key.uuid)
    devices = gpu.devices if gpu is not None else ()
    return next((device for device in devices if device.key == key), None)


def _devices(before: HeldGpu | None, after: HeldGpu) -> Iterable[_DeviceOfLooks]:
    """The devices of a GPU at two looks."""
    held_before = _holders_of(before)
    held_after = _holders_of(after)
    for key in {**held_before, **held_after}:
        yield _DeviceOfLooks(key, held_before.get(key, ()), held_after.get(key, ()))


def _holders_of(held: HeldGpu | None) -> Mapping[DeviceKey, Collection[Entry]]:
    """The holders of each device of a GPU."""
    devices = held.devices if held is not None else ()
    return {device.key: [entry for entry, _ in device.holders] for device in devices}


def _grown(device: Device[Entry], last: Times, now: Times) -> list[int]:
    """The holders' times, and last nobody's; [] if one of them is not known."""
    owners = [entry.owner for entry, _ in device.holders]
    if any(owner not in last or owner not in now for owner in owners):
        return []
    times = [now.get(owner, 0) - last.get(owner, 0) for owner in (*owners, None)]
    return times if min(times) >= 0 else []
