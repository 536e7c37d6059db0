"""The grammar of annotations that separate containers and devices by characters.

HAMi, Volcano, Intel's GPU Aware Scheduling, Ascend's device plugin and the allocators of users' rule files write so.
"""

import re
from dataclasses import dataclass
from typing import Any

from exporter.model.device_ref import DeviceRef
from exporter.model.grants import Grant
from exporter.ownership.allocators.said import (
    MOST_MIB,
    MOST_PERCENT,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Separated:
    """Reads an annotation into the devices of containers. An empty place of a container keeps its position.

    Attributes:
        allocator: the allocator's name, for grants.
        device: what one device looks like, with groups of `REF_PARTS` and `AMOUNTS`. A device whose naming groups are
            all empty stands for no device. A group `share` marks a share of a device; a group `place` marks a place on
            a GPU that is to be cut, which tells no device.
        shape: what one device looks like, for people.
        containers: the text between containers; "" if the annotation is about the whole pod.
        ends: whether the text `containers` also ends the last container. None: it may.
        devices: the text between devices; "" if a container has one. It may end the last device, too.
        is_share: every device is a share.
    """

    allocator: str
    device: re.Pattern[str]
    shape: str
    containers: str = ""
    ends: bool | None = False
    devices: str = ""
    is_share: bool = False

    def __call__(self, text: str) -> Said:
        """What the annotation says. Raises Unreadable: it has another form."""
        check_length(text)
        places = text.split(self.containers) if self.containers else [text]
        if self.ends and not places[-1].strip():
            places.pop()
        entries = tuple(self._entries(place, number) for number, place in enumerate(places, start=1))
        return Said(entries, may_be_over=self.ends is None and not entries[-1])

    def _entries(self, text: str, container: int) -> tuple[WrittenDevice, ...]:
        devices = text.split(self.devices) if self.devices else [text]
        where = f"place {container}, " if self.containers else ""
        entries: list[WrittenDevice] = []
        for number, device in enumerate(devices, start=1):
            entry = self._entry(device.strip(), f"{where}device {number}")
            if entry is not None:
                entries.append(entry)
        return tuple(entries)

    def _entry(self, text: str, where: str) -> WrittenDevice | None:
        """A device; None if the text stands for none."""
        if not text:
            return None
        match = self.device.fullmatch(text) if len(text) <= _LONGEST_DEVICE else None
        if match is None:
            raise Unreadable(f"{where}: {shown(text)} is not {self.shape}")
        parts = {name: part for name, part in match.groupdict().items() if part}
        if not NAMING_PARTS & parts.keys():
            return None
        if "place" in parts:
            raise Unreadable(f"{where}: {shown(text)} names a place on a GPU that is cut for it, not a device")
        if not text.isascii() or not text.isprintable():
            raise Unreadable(f"{where}: {shown(text)} has characters that no device's name has")
        return WrittenDevice(ref=self._ref(parts), grant=self._grant(parts, where))

    def _ref(self, parts: dict[str, str]) -> DeviceRef:
        names: dict[str, Any] = {name: part for name, part in parts.items() if name in REF_PARTS}
        if names.get("uuid", "").startswith("MIG-"):
            names["mig"] = names.pop("uuid")
        elif _UUID.fullmatch(names.get("uuid", "")):
            names["uuid"] = f"GPU-{names['uuid']}"
        is_share = self.is_share or "share" in parts
        return DeviceRef(form=f"an annotation of {self.allocator}", shared=is_share, **names)

    def _grant(self, parts: dict[str, str], where: str) -> Grant:
        amounts: dict[str, float | None] = {}
        for name, most in AMOUNTS.items():
            if name in parts:
                amounts[name] = amount(_number(parts[name], f"{where}, {name}"), most, f"{where}: {name}")
        return Grant(allocator=self.allocator, **amounts)


def _number(text: str, where: str) -> float:
    """A decimal number. Raises Unreadable: it is none."""
    if len(text) <= _LONGEST_NUMBER:
        try:
            return float(text)
        except ValueError:
            pass
    raise Unreadable(f"{where}: {shown(text)} is no number")
