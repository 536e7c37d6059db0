"""/container/metrics: JSON, one object for each device (a GPU or a MIG instance) and container that holds it.

Made from the rows of the joined page, so that both say the same: `--sharing` decides how many rows a shared device has,
and with what values. A value becomes a number here and nowhere else.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from exporter.attribution.fields import FIELDS, Field
from exporter.attribution.labels import SHARED_LABEL
from exporter.attribution.sharing import is_amount
from exporter.model import AddedLabels, DeviceKey, Owner, Snapshot, Subject
from exporter.outputs.devices import seen_devices
from exporter.outputs.families import why_not

# Query parameter → the field that it is compared with.
FILTERS = {
    "pod": "pod",
    "namespace": "namespace",
    "container": "container",
    "node": "node_name",
    "workload": "workload_name",
}
METRICS = (
    "sm_active",
    "sm_occupancy",
    "tensor_active",
    "dram_active",
    "pcie_tx_bytes",
    "pcie_rx_bytes",
    "nvlink_tx_bytes",
    "nvlink_rx_bytes",
    "graphics_engine_active",
    "framebuffer_total",
    "framebuffer_used",
    "framebuffer_free",
    "pcie_link_gen",
    "pcie_link_width",
    "temperature",
    "memory_temperature",
    "power_usage",
    "gpu_utilization",
    "int_pipe_active",
    "fp16_pipe_active",
    "fp32_pipe_active",
    "fp64_pipe_active",
    "clocks_event_reasons",
    "xid_errors",
    "power_violation",
    "thermal_violation",
    "sm_clock",
    "mem_clock",
)
_UNKNOWN: Mapping[str, None] = dict.fromkeys(METRICS)
_FAMILIES = {name.encode(): known for name, known in FIELDS.items() if known.json}
_NOBODY = Owner(namespace="", pod="", container="")
# JavaScript, and with it most readers of JSON, knows whole numbers exactly up to here.
_EXACT = 2**53
_USUAL = 2**31 - 16

Row = dict[str, Any]


def number(text: bytes, field: Field) -> int | float | None:
    """A sample's value in its field's unit; None for NaN, infinities and DCGM's values for "not supported"."""
    value = float(text)
    if not value:
        return 0  # also what is too small for a double, or 0e99999999999999999999, which decimals cannot hold
    # DCGM's "not supported" are larger than this; NaN is not in between either
    if not -_USUAL < value < _USUAL and not is_amount(text):
        return None
    if not field.times == field.per == 1:
        # in decimals: 0.57 times 100 is to be 57
        value = float(Decimal(text.decode()) * field.times / field.per)
        if not isfinite(value):
            return None
    return int(value) if value.is_integer() and -_EXACT < value < _EXACT else value


def rows(snapshot: Snapshot) -> list[Row]:
    """The objects, in stable order: by GPU, MIG instance, namespace, pod and container."""
    if snapshot.joined is None:
        return []
    devices = {device.key: device for device in seen_devices(snapshot)}
    parents = {key.uuid for key in devices if key.instance}
    values: dict[DeviceKey, dict[tuple[Owner, bool], dict[str, int | float | None]]] = {key: {} for key in devices}
    # by the objects themselves: all rows of a device and owner share them
    rows_of: dict[tuple[int, int], dict[str, int | float | None]] = {}
    for family, subject, labels, value in snapshot.joined.cells(_FAMILIES):
        metrics = rows_of.get((id(subject), id(labels)))
        if metrics is None:
            held_by = _owner(labels, subject, snapshot.facts.label_names)
            # what is no device has a row too, and nobody looks at it
            metrics = values.get(subject.key, {}).setdefault(held_by, {})
            rows_of[id(subject), id(labels)] = metrics
        field = _FAMILIES[family]
        # of two names of one measurement, and of two rows that are alike, the first that says something
        if metrics.get(field.json) is None:
            metrics[field.json] = number(value, field)
    read_at = _rfc3339(snapshot.read_at_seconds)
    found = []
    for key, device in devices.items():
        of_device = values[key]
        held = {held_by: metrics for held_by, metrics in of_device.items() if held_by[0] != _NOBODY}
        # a device that somebody holds is nobody's no longer, whatever a row without owner is left over
        for (owner, shared), metrics in sorted((held or of_device or {(_NOBODY, False): {}}).items()):
            found.append(
                {
                    **_identity(snapshot, device, parents),
                    **_of(owner, snapshot),
                    "gpu_shared": shared,
                    **_UNKNOWN,
                    **metrics,
                    "timestamp": read_at,
                }
            )
    return found


def render(snapshot: Snapshot, filters: Mapping[str, str]) -> bytes | None:
    """The array; None where every GPU source failed. `filters` are by query parameter; an empty one is none."""
    if snapshot.joined is None:
        return None
    wanted = {FILTERS[name]: value for name, value in filters.items() if value}
    chosen = [row for row in rows(snapshot) if all(row.get(name, "") == value for name, value in wanted.items())]
    return json.dumps(chosen, separators=(",", ":")).encode() + b"\n"


def error(text: str) -> bytes:
    """What went wrong, as JSON."""
    return json.dumps({"error": text}).encode() + b"\n"


def why_no_rows(snapshot: Snapshot) -> bytes:
    """Why there are none, as JSON."""
    return error(why_not(snapshot))


def wrong_query(given: Iterable[tuple[str, str]]) -> str:
    """What is wrong with a query's parameters, or ""."""
    names = [name for name, _ in given]
    for name in names:
        if name not in FILTERS:
            return f"{name!r} is not a parameter; the parameters are {', '.join(FILTERS)}"
        if names.count(name) > 1:
            return f"{name!r} is given {names.count(name)} times; give it once"
    return ""


def _owner(labels: AddedLabels, subject: Subject, names: Sequence[str]) -> tuple[Owner, bool]:
    """Whose row it is, and whether it is of a share."""
    gained = dict(labels)
    pod, namespace, container = (gained.get(name, "") for name in names)
    owner = Owner(namespace=namespace, pod=pod, container=container)
    if owner == _NOBODY and subject.exported:
        owner = subject.exported
    return owner, bool(gained.get(SHARED_LABEL))


def _identity(snapshot: Snapshot, device: Subject, parents: set[str]) -> Row:
    named = snapshot.facts.node_is_named or not device.host
    found = {
        "node_name": snapshot.node if named else device.host,
        "model_name": device.model,
        "device": device.device,
        "device_id": device.index,
        "device_uuid": device.uuid,
    }
    if device.instance:
        if device.profile:
            found["mig_profile"] = device.profile
        return {**found, "mig_instance_id": device.instance, "entity": "mig"}
    return {**found, "entity": "mig-parent" if device.key.uuid in parents else "gpu"}


def _of(owner: Owner, snapshot: Snapshot) -> Row:
    found = {"pod": owner.pod, "container": owner.container, "namespace": owner.namespace}
    workload = snapshot.workloads.get((owner.namespace, owner.pod))
    return {**found, "workload_name": workload[0], "workload_kind": workload[1]} if workload else found


def _rfc3339(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
