"""Device ids: what the kubelet's ContainerDevices.device_ids refer to, as a table of rules.

Rules are data. The first rule whose resource glob and whose pattern match the whole id wins; a user's own
(`--device-rules`) come before the built-in ones. A pattern names what its parts are:

- `uuid`: a GPU's UUID, `mig`: a MIG instance's own UUID;
- `device`: a GPU's name (the samples' label `device`), `index`: its number (the label `gpu`);
- `instance`: a MIG instance's number on that GPU (GPU_I_ID);
- `share`: there for one share of a device (time slicing, MPS), whatever it holds.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from exporter.model.devices import DeviceRef

PARTS = frozenset({"uuid", "mig", "device", "index", "instance", "share"})
# Without one of these an id names no device.
NAMING_PARTS = frozenset({"uuid", "mig", "device", "index"})


@dataclass(frozen=True, slots=True)
class Rule:
    """One form of a device id. `uuid_prefix` goes before the group `uuid` to make the samples' UUID."""

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
    """What `device_id` refers to; None for a form that no rule knows."""
    for rule in rules:
        found = rule.pattern.fullmatch(device_id)
        if found and fnmatchcase(resource, rule.resource):
            parts = {name: text for name, text in found.groupdict().items() if text is not None}
            shared = parts.pop("share", None) is not None
            if "uuid" in parts:
                parts["uuid"] = rule.uuid_prefix + parts["uuid"]
            return DeviceRef(form=rule.form, shared=shared, **parts)
    return None
