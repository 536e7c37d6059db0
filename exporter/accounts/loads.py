"""How active the devices of a GPU were in each stretch of the time that a page describes.

A page has one activity of each device, the mean of all its time. A device that containers held for a part of that time
was active in that part, since one that nobody holds is not: the more, the more of them held it at a time. A device that
nobody held in any of it was active throughout, by whatever works there outside Kubernetes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import lcm

from exporter.accounts.entries import Entry
from exporter.accounts.gpu import WHOLE
from exporter.accounts.holders import HeldGpu
from exporter.accounts.holdings import Device
from exporter.accounts.observation import GpuSamples
from exporter.accounts.stretches import Stretch

Part = tuple[int, int]  # numerator and denominator: how active a device was
_NONE: Part = (0, 1)


def spread(active_ns: int, held_ns: Mapping[int, int]) -> Mapping[int, Part]:
    """How active a device was while so many containers held it, by their number, and so in what proportion.

    `active_ns` is its active time in all, and `held_ns` for how long each number of containers held it. It is not
    active for more than all of a time: what is left over is nobody's here.
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
    """The loads of one GPU's devices in the pieces of a window, of which `samples` say the activity.

    A load is active time times compute slices, in a unit of this window alone. `pieces` are the window's stretches, and
    one without a length for each of `edges`, who held the GPU just before the window and just after it: what a device
    was active for longer than looks saw it held may be theirs (`GpuAtLook.edges`). `loads` are by piece and by device,
    of the devices that the page has; all are 0 where the activity is not known.
    """

    def __init__(
        self, window: Sequence[Stretch], samples: GpuSamples, edges: tuple[HeldGpu | None, HeldGpu | None]
    ) -> None:
        is_seen = all(stretch.is_seen for stretch in window)
        at_edges = [Stretch(held, 0) for held in edges if is_seen and held is not None and held.holders]
        self.pieces: Sequence[Stretch] = [*window, *at_edges]
        self._samples = samples
        # as mostly: then nothing changes within the window
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
        self._unit = lcm(*(whole for parts in self._parts.values() for _, whole in parts.values()))

    def of_pieces(self) -> Sequence[int]:
        """The loads of all devices of each piece together; all are 0 where one of the stretches was not seen."""
        if self._is_one:
            return [1]
        if len(self._window) + len(self._at_edges) < len(self.pieces):
            return [0] * len(self.pieces)
        loads = []
        for piece in self.pieces:
            # of a GPU that is not cut there is one device, whether this look's page had it or not
            devices = [device for device in piece.held.devices if device.is_sampled or not piece.held.is_cut]
            loads.append(sum(self._load(piece, device) for device in devices))
        return loads

    def of_devices(self, piece: Stretch, devices: Sequence[Device[Entry]]) -> Sequence[int]:
        """The loads of these devices in a piece: their slices alone where none has one, or none is known."""
        loads = [self._load(piece, device) for device in devices] if piece.is_seen else []
        return loads if any(loads) else [device.slices for device in devices]

    def _held_ns(self) -> Mapping[str, Counter[int]]:
        """By GPU_I_ID for how long each number of containers held a device; an empty one where only edges do."""
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
            held_there = [edge for edge in self._at_edges if _holds(edge.held, instance)]
            left_ns = max(0, self._active_ns(instance) - sum(held_ns.values()))
            return device.slices * left_ns * self._unit // len(held_there)
        active, whole = self._parts[instance][len(device.holders)]
        return device.slices * active * piece.ns * (self._unit // whole)


def _holds(held: HeldGpu, instance: str) -> bool:
    return any(device.key.instance == instance for device, _ in held.holders)
