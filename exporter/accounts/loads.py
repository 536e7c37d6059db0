"""Loads: the activity of a GPU's devices in each stretch of the time that a page describes.

A page has one activity of each device, the mean over all its time. If containers held the device for a part of that
time, its activity belongs to that part, since a device that nobody holds is not active. It is higher while more
containers hold it. If nobody held the device in that time, something outside Kubernetes used it all the time.

Tests: tests/accounts/test_loads.py, tests/accounts/test_standing_pages.py.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import lcm

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import WHOLE
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import Stretch

Part = tuple[int, int]  # numerator and denominator of a device's activity
_NONE: Part = (0, 1)


def spread(active_ns: int, held_ns: Mapping[int, int]) -> Mapping[int, Part]:
    """The activity of a device while so many containers held it; twice as many holders make it twice as active.

    The result is by the number of holders. `active_ns` is the device's whole active time, `held_ns` the time for which
    each number of containers held it. An activity is at most 1: active time beyond that is left out.
    """
    if len(held_ns) == 1:
        ((number, ns),) = held_ns.items()
        return {number: (min(active_ns, ns), ns) if ns else _NONE}
    parts: dict[int, Part] = {}
    weighted = sum(number * ns for number, ns in held_ns.items())
    for number, ns in sorted(held_ns.items(), reverse=True):
        if ns and number * active_ns >= weighted:
            parts[number] = 1, 1
            active_ns -= ns
            weighted -= number * ns
        else:
            parts[number] = (number * active_ns, weighted) if weighted else _NONE
    return parts


class Loads:
    """The loads of one GPU's devices in the pieces of a window; `samples` have the devices' activity in it.

    A load is active time times compute slices, in a unit that only this window has. `pieces` are the window's stretches
    and, for the holders just before and just after the window (`edges`), a piece without a length: if a device was
    active for longer than looks saw holders, the rest of this time may be theirs (`GpuAtLook.edges`). All loads are 0
    if the activity is not known.
    """

    def __init__(
        self, window: Sequence[Stretch], samples: GpuSamples, edges: tuple[HeldGpu | None, HeldGpu | None]
    ) -> None:
        is_seen = all(stretch.is_seen for stretch in window)
        at_edges = [Stretch(held, 0) for held in edges if is_seen and held is not None and held.holders]
        self.pieces: Sequence[Stretch] = [*window, *at_edges]
        self._samples = samples
        # the usual case: nothing changes within the window
        self._is_one = len(self.pieces) == 1
        if self._is_one:
            return
        self._window = [stretch for stretch in window if stretch.is_seen]
        self._at_edges = at_edges
        self._all_ns = sum(stretch.ns for stretch in self._window)
        self._by_number = self._held_ns()
        self._parts = {
            instance: spread(self._active_ns(instance), held_ns)
            for instance, held_ns in self._by_number.items()
            if held_ns
        }
        every_part = chain.from_iterable(parts.values() for parts in self._parts.values())
        self._unit = lcm(*(whole for _, whole in every_part))

    def of_pieces(self) -> Sequence[int]:
        """The sum of the devices' loads, for each piece; all are 0 if one of the stretches was not seen."""
        if self._is_one:
            return [1]
        if len(self._window) + len(self._at_edges) < len(self.pieces):
            return [0] * len(self.pieces)
        loads = []
        for piece in self.pieces:
            # a GPU that is not cut has one device, even if this look's page lacked it
            devices = [device for device in piece.held.devices if device.is_sampled or not piece.held.is_cut]
            loads.append(sum(self._load(piece, device) for device in devices))
        return loads

    def of_devices(self, piece: Stretch, devices: Sequence[Device[Entry]]) -> Sequence[int]:
        """The loads of these devices in a piece; only their slices if all loads are 0 or not known."""
        loads = [self._load(piece, device) for device in devices] if piece.is_seen else []
        return loads if any(loads) else [device.slices for device in devices]

    def _held_ns(self) -> Mapping[str, Counter[int]]:
        """The time for which each number of containers held a device, by GPU_I_ID.

        Empty if only the edges have holders.
        """
        held_ns: dict[str, Counter[int]] = {}
        for piece in self._at_edges:
            for device, _ in piece.held.holders:
                held_ns.setdefault(device.key.instance, Counter())
        for stretch in self._window:
            for device in stretch.held.devices:
                if device.holders:
                    of_device = held_ns.setdefault(device.key.instance, Counter())
                    of_device[len(device.holders)] += stretch.ns
        return held_ns

    def _active_ns(self, instance: str) -> int:
        return min(self._samples.activity_of(instance) or 0, WHOLE) * self._all_ns // WHOLE

    def _load(self, piece: Stretch, device: Device[Entry]) -> int:
        """A device's active time in a piece times its slices, in a unit in which all loads are whole numbers."""
        instance = device.key.instance
        if self._is_one:
            return device.slices * (self._samples.activity_of(instance) or 0)
        held_ns = self._by_number.get(instance)
        if held_ns is None:
            of_all = self._active_ns(instance)
            return device.slices * of_all * piece.ns * self._unit // (self._all_ns or 1)
        if not device.holders:
            return 0
        if not piece.ns and piece in self._at_edges:
            held_there = [edge for edge in self._at_edges if edge.held.holders_of(instance)]
            left_ns = max(0, self._active_ns(instance) - sum(held_ns.values()))
            return device.slices * left_ns * self._unit // len(held_there)
        active, whole = self._parts[instance][len(device.holders)]
        return device.slices * active * piece.ns * (self._unit // whole)
