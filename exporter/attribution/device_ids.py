"""Device ids: what the kubelet's ContainerDevices.device_ids refer to, as a table of rules.

Rules are data. The first rule wins whose glob matches the resource and whose pattern matches the whole id. A user's
rules (`--device-rules`) come before the built-in ones. A pattern names the parts of the id:

- `uuid`: a GPU's UUID, `mig`: a MIG instance's own UUID;
- `device`: a GPU's name (the samples' label `device`), `index`: its number (the label `gpu`);
- `instance`: a MIG instance's number on that GPU (GPU_I_ID);
- `share`: present where the id means one share of a device (time slicing, MPS); its text does not matter.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from exporter.model.devices import DeviceRef

PARTS = frozenset({"uuid", "mig", "device", "index", "instance", "share"})
# An id without any of these names no device.
NAMING_PARTS = frozenset({"uuid", "mig", "device", "index"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a device id. `uuid_prefix` and the group `uuid` together are the UUID that samples carry."""

    form: str
    pattern: re.Pattern[str]
    resource: str = "*"
    uuid_prefix: str = ""


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_SHARE = r"(?P<share>::.*)?"
RULES = (
    Rule("GPU-<uuid>-_-<n> (gpushare)", re.compile(rf"(?P<uuid>GPU-{_UUID})(?P<share>-_-[0-9]+)")),
    Rule("<uuid>-_-<n> (gpushare)", re.compile(rf"(?P<uuid>{_UUID})(?P<share>-_-[0-9]+)"), uuid_prefix="GPU-"),
    Rule("GPU-<uuid>-<n> (HAMi)", re.compile(rf"(?P<uuid>GPU-{_UUID})(?P<share>-[0-9]+)")),
    Rule("MIG-<uuid>-<n> (HAMi)", re.compile(rf"(?P<mig>MIG-{_UUID})(?P<share>-[0-9]+)")),
    Rule("<uuid>-<n> (HAMi)", re.compile(rf"(?P<uuid>{_UUID})(?P<share>-[0-9]+)"), uuid_prefix="GPU-"),
    Rule("GPU-<uuid>, GPU-<uuid>::<n>", re.compile(rf"(?P<uuid>GPU-[^:/\s]+){_SHARE}")),
    Rule("<uuid>, <uuid>::<n>", re.compile(rf"(?P<uuid>{_UUID}){_SHARE}"), uuid_prefix="GPU-"),
    # drivers before R470 named an instance by its GPU and its GPU and compute instance ids
    Rule(
        "MIG-GPU-<uuid>/<gi>/<ci>",
        re.compile(rf"MIG-(?P<uuid>GPU-[^:/\s]+)/(?P<instance>[0-9]+)/[0-9]+{_SHARE}"),
    ),
    Rule("MIG-<uuid>, MIG-<uuid>::<n>", re.compile(rf"(?P<mig>MIG-(?!GPU-)[^:/\s]+){_SHARE}")),
    Rule(
        "nvidia<N>, nvidia<N>/gi<M>, /vgpu<K>",
        re.compile(r"(?P<device>nvidia(?P<index>[0-9]+))(?:/gi(?P<instance>[0-9]+))?(?P<share>/vgpu[0-9]+)?"),
    ),
    Rule("<N>/vgpu", re.compile(r"(?P<index>[0-9]+)(?P<share>/vgpu)")),
)


def read_device_id(resource: str, device_id: str, rules: Sequence[Rule] = RULES) -> DeviceRef | None:
    """The device that `device_id` refers to, by the first rule that matches; None where no rule matches."""
    for rule in rules:
        match = rule.pattern.fullmatch(device_id)
        if match and fnmatchcase(resource, rule.resource):
            parts = {name: text for name, text in match.groupdict().items() if text is not None}
            shared = parts.pop("share", None) is not None
            if "uuid" in parts:
                parts["uuid"] = rule.uuid_prefix + parts["uuid"]
            return DeviceRef(form=rule.form, shared=shared, **parts)
    return None
