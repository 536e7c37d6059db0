"""Device ids: what the kubelet's ContainerDevices.device_ids refer to, as a table of rules.

Rules are data: the first pattern that matches the whole id wins. A rule's pattern names two groups, `uuid` (what the
samples' UUID label holds) and `share` (present for one share of a time-sliced or MPS device).
"""

import re
from dataclasses import dataclass

from exporter.model import DeviceKey


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a device id. `uuid_prefix` goes before the group `uuid` to make the samples' UUID."""

    form: str
    pattern: re.Pattern[str]
    uuid_prefix: str = ""


@dataclass(frozen=True, slots=True)
class DeviceRef:
    """What an id refers to: a device, or one share of it."""

    key: DeviceKey
    shared: bool


_SHARE = r"(?P<share>::.*)?"
RULES = (
    Rule("GPU-<uuid>, GPU-<uuid>::<n>", re.compile(r"(?P<uuid>GPU-[^:/\s]+)" + _SHARE)),
    # Without an inventory a MIG id is found only where samples carry it as their UUID.
    Rule("MIG-<uuid>, MIG-<uuid>::<n>", re.compile(r"(?P<uuid>MIG-[^:/\s]+)" + _SHARE)),
    Rule("<uuid>", re.compile(r"(?P<uuid>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})" + _SHARE), uuid_prefix="GPU-"),
)


def read_device_id(device_id: str) -> DeviceRef | None:
    """What `device_id` refers to; None for a form that no rule knows."""
    for rule in RULES:
        found = rule.pattern.fullmatch(device_id)
        if found:
            return DeviceRef(DeviceKey(uuid=rule.uuid_prefix + found["uuid"]), shared=found["share"] is not None)
    return None
