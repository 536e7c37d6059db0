"""The grammar of annotations that separate containers and devices by characters.

HAMi, Volcano, Intel's GPU Aware Scheduling, Ascend's device plugin and the allocators of users' rule files write so.

Tests: tests/ownership/allocators/test_hami.py.
"""

import re
from typing import Any

from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant
from exporter.ownership.allocators.said import (
    MOST_DEVICES,
    MOST_MIB,
    MOST_PERCENT,
    MOST_PLACES,
    Said,
    Unreadable,
    WrittenDevice,
    amount,
    check_length,
    shown,
)

# groups of a device's pattern
REF_PARTS = frozenset({"uuid", "mig", "device", "index", "instance", "minor"})
NAMING_PARTS = frozenset({"uuid", "mig", "device", "index", "minor"})
AMOUNTS = {"memory_mib": MOST_MIB, "cores_percent": MOST_PERCENT, "fraction": 1.0}
_LONGEST_DEVICE = 256
_LONGEST_NUMBER = 20
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Separated:
    """Reads an annotation into the devices of containers. An empty place of a container keeps its position."""

    def __init__(
        self,
        *,
        allocator: str,
        device: re.Pattern[str],
        shape: str,
        containers: str = "",
        ends: bool | None = False,
        devices: str = "",
        is_share: bool = False,
    ) -> None:
        """What tells apart the forms of annotations.

        Args:
            allocator: the allocator's name, for grants.
            device: what one device looks like, with groups of `REF_PARTS` and `AMOUNTS`. A device whose naming groups
                are all empty stands for no device. A group `share` marks a share of a device; a group `place` marks a
                place on a GPU that is to be cut, which tells no device.
            shape: what one device looks like, for people.
            containers: the text between containers; "" if the annotation is about the whole pod.
            ends: whether the text `containers` also ends the last container. None: it may.
            devices: the text between devices; "" if a container has one. It may end the last device, too.
            is_share: every device is a share.
        """
        self._device = device
        self._shape = shape
        self._containers = containers
        self._ends = ends
        self._devices = devices
        self._is_share = is_share
        self._form = f"an annotation of {allocator}"
        self._without_amounts = Grant(allocator=allocator)
        groups = device.groupindex.keys()
        self._names = tuple(REF_PARTS & groups)
        self._amounts = tuple((name, most) for name, most in AMOUNTS.items() if name in groups)

    def __call__(self, text: str) -> Said:
        """What the annotation says. Raises Unreadable: it has another form."""
        check_length(text)
        if not text.isascii():
            raise Unreadable(f"{shown(text)} has characters that no device's name has")
        _check_count(text, self._containers, MOST_PLACES, "containers")
        _check_count(text, self._devices, MOST_DEVICES, "devices")
        places = text.split(self._containers) if self._containers else [text]
        if self._ends and not places[-1].strip():
            places.pop()
        entries = tuple(self._read_place(place, number) for number, place in enumerate(places, start=1))
        return Said(entries, may_be_over=self._ends is None and not entries[-1])

    def _read_place(self, text: str, place: int) -> tuple[WrittenDevice, ...]:
        texts = text.split(self._devices) if self._devices else [text]
        devices = []
        for number, of_device in enumerate(texts, start=1):
            try:
                device = self._read_device(of_device.strip())
            except Unreadable as error:
                where = f"place {place}, " if self._containers else ""
                raise Unreadable(f"{where}device {number}: {error}") from None
            if device is not None:
                devices.append(device)
        return tuple(devices)

    def _read_device(self, text: str) -> WrittenDevice | None:
        """A device; None if the text stands for none. Raises Unreadable: it names none in a way that is known."""
        if not text:
            return None
        match = self._device.fullmatch(text) if len(text) <= _LONGEST_DEVICE else None
        if match is None:
            raise Unreadable(f"{shown(text)} is not {self._shape}")
        parts = match.groupdict()
        names: dict[str, Any] = {name: parts[name] for name in self._names if parts[name]}
        if not NAMING_PARTS & names.keys():
            return None
        if parts.get("place"):
            raise Unreadable(f"{shown(text)} names a place on a GPU that is cut for it, not a device")
        if not text.isprintable():
            raise Unreadable(f"{shown(text)} has characters that no device's name has")
        uuid = names.get("uuid", "")
        if uuid.startswith("MIG-"):
            names["mig"] = names.pop("uuid")
        elif _UUID.fullmatch(uuid):
            names["uuid"] = f"GPU-{uuid}"
        is_share = self._is_share or bool(parts.get("share"))
        return WrittenDevice(ref=DeviceRef(form=self._form, shared=is_share, **names), grant=self._grant(parts))

    def _grant(self, parts: dict[str, str | None]) -> Grant:
        if not self._amounts:
            return self._without_amounts
        amounts = {name: amount(_number(parts[name] or "0", name), most, name) for name, most in self._amounts}
        return Grant(allocator=self._without_amounts.allocator, **amounts)


def _check_count(text: str, separator: str, most: int, what: str) -> None:
    """Raise Unreadable: more is separated than anybody reads in a moment."""
    if separator and text.count(separator) > most:
        raise Unreadable(f"it names more than {most} {what}")


def _number(text: str, name: str) -> float:
    """A decimal number. Raises Unreadable: it is none."""
    if len(text) <= _LONGEST_NUMBER:
        try:
            return float(text)
        except ValueError:
            pass
    raise Unreadable(f"{name}: {shown(text)} is no number")
