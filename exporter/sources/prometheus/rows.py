"""The series of a node → its devices and who holds them, as the node's exporter says it in /container/metrics. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from exporter.accounting.numbers import number
from exporter.attribution.explain import what_hides_owners
from exporter.model.cluster import HeldDevice
from exporter.model.devices import DeviceKey
from exporter.model.entities import cut_gpus, entity_of, in_order
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.states import DeviceState, state_of
from exporter.sources.prometheus.queries import KNOWN, MEASURED

MOST_ROWS = 1_000
NOBODY = Owner(namespace="", pod="", container="")
FIELDS = tuple(dict.fromkeys(known.json for known in KNOWN.values()))
_RANK = {name: rank for rank, name in enumerate(KNOWN)}

_UNKNOWN: Mapping[str, None] = dict.fromkeys(FIELDS)


@dataclass(slots=True)
class Held:
    """A device in one container. `ranks` say by which of its names a field has its value: the first in the table wins.

    `is_sampled`: a sample names this container, or nobody, as the one that has the device.
    """

    shared: bool = False
    uid: str = ""
    is_sampled: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class NodeRows:
    """What is known of one node, while the answers come in.

    `owners` is how many containers hold a device. `measured` is what the driver's processes tell of a container on a
    device, by family. `workloads` are names and kinds, by namespace and pod. `unmatched` are the reasons for which
    devices that the kubelet handed out have no samples. `is_without_kubelet`: the kubelet does not
    answer the exporter.
    """

    devices: dict[DeviceKey, Subject] = field(default_factory=dict)
    held: dict[DeviceKey, dict[Owner, Held]] = field(default_factory=dict)
    owners: dict[DeviceKey, float] = field(default_factory=dict)
    measured: dict[tuple[DeviceKey, Owner], dict[str, float]] = field(default_factory=dict)
    workloads: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    unmatched: set[str] = field(default_factory=set)
    is_without_kubelet: bool = False

    @property
    def is_too_large(self) -> bool:
        """Whether no node has that much."""
        holders = sum(map(len, self.held.values()))
        return max(len(self.devices), holders, len(self.measured), len(self.workloads)) > MOST_ROWS

    def add_device(self, subject: Subject) -> dict[Owner, Held]:
        """Its holders. What another series says of the device is kept, too."""
        key = subject.key
        known = self.devices.get(key)
        if known is None:
            self.devices[key] = subject
        elif known is not subject:
            self.devices[key] = replace(
                known,
                index=known.index or subject.index,
                device=known.device or subject.device,
                model=known.model or subject.model,
                profile=known.profile or subject.profile,
            )
        return self.held.setdefault(key, {})

    def add(self, subject: Subject, owner: Owner) -> Held:
        """The entry of a device and a container."""
        holders = self.add_device(subject)
        entry = holders.get(owner)
        if entry is None:
            entry = holders[owner] = Held()
        return entry


def set_metric(entry: Held, family: str, value: str) -> None:
    """A sample's value, where it is one; NaN and DCGM's values for "not supported" are none."""
    known = KNOWN[family]
    rank, before = _RANK[family], entry.ranks.get(known.json)
    found = number(value.encode(), known)
    if found is None or (before is not None and before < rank):
        return
    entry.metrics[known.json] = max(found, entry.metrics[known.json]) if before == rank else found
    entry.ranks[known.json] = rank


def held_devices(rows: NodeRows, node: str, read_at_seconds: float, *, samples_are_newer: bool) -> Iterable[HeldDevice]:
    """The rows in stable order, one by one. `samples_are_newer` than what the exporter said of itself.

    A container that is said to hold a device, but is none of those that newer samples of it name, has let go of it.
    """
    cut = cut_gpus(rows.devices.values())
    read_at = datetime.fromtimestamp(read_at_seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    for device in sorted(rows.devices.values(), key=in_order):
        holders = dict(rows.held.get(device.key, {}))
        is_sampled = any(entry.is_sampled for entry in holders.values())
        if is_sampled and samples_are_newer:
            holders = {owner: entry for owner, entry in holders.items() if entry.is_sampled}
        nobodys = holders.get(NOBODY)
        if (
            len(holders) > 1
            and nobodys
            and (not nobodys.metrics or any(entry.metrics for owner, entry in holders.items() if owner != NOBODY))
        ):
            # a device that somebody holds is nobody's no longer
            del holders[NOBODY]
        several = rows.owners.get(device.key, 0) > 1
        for owner, entry in sorted(holders.items()) or [(NOBODY, Held())]:
            yield _held(
                device,
                entry,
                owner=owner,
                entity=entity_of(device, cut),
                workload=rows.workloads.get((owner.namespace, owner.pod), ("", "")),
                is_shared=entry.shared or several,
                measured=rows.measured.get((device.key, owner), {}),
                why_unknown=what_hides_owners(rows.unmatched, device),
                # when the node read the values, and who held the device then, no series says
                said={"node_name": node, "timestamp": read_at, "read_at": None, "holder_since": None},
            )


def _held(
    device: Subject,
    entry: Held,
    *,
    owner: Owner,
    entity: str,
    workload: tuple[str, str],
    is_shared: bool,
    measured: Mapping[str, float],
    why_unknown: str,
    said: Mapping[str, str | None],
) -> HeldDevice:
    text: dict[str, Any] = {
        **said,
        "model_name": device.model,
        "device": device.device,
        "device_id": device.index,
        "device_uuid": device.uuid,
        "entity": entity,
    }
    if entity == "mig":
        text |= {"mig_profile": device.profile} if device.profile else {}
        text |= {"mig_instance_id": device.instance} if device.instance else {}
    text |= {"pod": owner.pod, "container": owner.container, "namespace": owner.namespace}
    text |= {"workload_name": workload[0], "workload_kind": workload[1]} if workload[0] else {}
    text |= {"pod_uid": entry.uid} if entry.uid else {}
    text |= {"gpu_shared": is_shared, **_UNKNOWN, **entry.metrics}
    text |= {"measured": {MEASURED[family]: value for family, value in measured.items()}} if measured else {}
    text["state"] = state = state_of(text, why_unknown=why_unknown)
    text |= {"state_reason": why_unknown} if state is DeviceState.UNKNOWN else {}
    return HeldDevice(
        uuid=device.gpu,
        instance=device.instance if entity == "mig" else "",
        namespace=owner.namespace,
        pod=owner.pod,
        container=owner.container,
        workload=workload[0],
        kind=workload[1],
        is_shared=is_shared,
        values={**entry.metrics, **measured},
        measured=frozenset(measured),
        text=json.dumps(text, separators=(",", ":")).encode(),
        entity=entity,
        state=state,
        model=device.model,
        index=device.index,
    )
