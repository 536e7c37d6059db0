"""The body of a node's /container/metrics (docs/openapi.yaml) → its devices. Pure, and strict: any program may answer.

Exporters may be older or newer. Unknown fields are kept, and a missing field is an unknown value; only the owner's
fields are required.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from exporter.dcgm.fields import FIELDS
from exporter.errors import Malformed
from exporter.model.cluster_view import HeldDevice
from exporter.model.device_row import FIELD_NAMES, DeviceRow, from_object
from exporter.model.node_answers import OWN_FAMILIES
from exporter.model.slices import Work
from exporter.reading import shown
from exporter.sources.json_text import JsonText, garbage

# More than 16 GPUs with 7 instances each, or with 48 time slices each, need.
MOST_ROWS = 1_000
# An object has some 1,100 characters, and more with a pod's labels; a larger one is not decoded at all.
MOST_ROW_CHARS = 32 * 1024
MOST_FIELDS = 256
# Kubernetes' names have at most 253 characters, models and UUIDs fewer.
MOST_TEXT_CHARS = 512
_LARGEST = 1e300

METRICS = frozenset(field.json for field in FIELDS.values() if field.json)
_OWNER = ("node_name", "device_uuid", "namespace", "pod", "container")
_TEXTS = (
    "model_name", "device", "device_id", "entity", "mig_profile", "mig_instance_id", "workload_name", "workload_kind",
    "state",
)  # fmt: skip
_SHARED = "gpu_shared"
_NAMES = {name: name for name in (*METRICS, *_OWNER, *_TEXTS, _SHARED)}
# The memory that an object takes beside its text: for the names and numbers that are read from it (measured: 2 KB).
_OBJECT_BYTES = 2048
_LOOK_THERE = (
    "look at what that address answers to curl: is it this program's node exporter, and of a version like this one's?"
)
_garbage = partial(garbage, remedy=_LOOK_THERE)

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAnswer:
    """An exporter's answer: its node ("" if there is no device), its devices in order, and its length in bytes."""

    node: str
    devices: tuple[HeldDevice, ...]
    size: int

    @property
    def kept_bytes(self) -> int:
        """The memory that the answer takes, about."""
        return self.size + _OBJECT_BYTES * len(self.devices)


def read_answer(body: bytes, node: str | None) -> Work[NodeAnswer]:
    """Read the devices, one in each slice. `node` is the node whose exporter was asked, None if unknown.

    Raises:
        Malformed: the body is no such answer, or is that of another node.
    """
    text = JsonText(body, _LOOK_THERE, _no_duplicates)
    devices: dict[tuple[str, ...], HeldDevice] = {}
    of_node = node
    text.expect("[", "it is not a JSON array")
    for row in text.objects(MOST_ROW_CHARS, "object"):
        where = f"object {len(devices)}"
        if len(devices) == MOST_ROWS:
            message = f"the answer has more than {MOST_ROWS} objects"
            raise Malformed("oversize", message, remedy=f"no node has that many containers with GPUs; {_LOOK_THERE}")
        held = HeldDevice(_device_row(row, where), text.raw.encode())
        of_node = _same_node(held.row.node_name, of_node, is_asked=node is not None)
        key = (*held.row.row_device, held.row.namespace, held.row.pod, held.row.container)
        if key in devices:
            raise _garbage(f"{where} is of the same device and container as one before it")
        devices[key] = held
        yield
    text.end()
    return NodeAnswer(node=of_node or "", devices=tuple(devices.values()), size=len(body))


def _device_row(row: Object, where: str) -> DeviceRow:
    """The row of a device, checked. `where` names it in errors. Raises Malformed."""
    for name in _OWNER:
        if name not in row:
            raise _garbage(f"{where} has no field {name}")
    for name in (*_OWNER, *_TEXTS):
        value = row.get(name, "")
        if type(value) is not str:
            raise _garbage(f"{where}: {name} is not text")
        if len(value) > MOST_TEXT_CHARS:
            raise _garbage(f"{where}: {name} has more than {MOST_TEXT_CHARS} characters")
    if type(row.get(_SHARED)) is not bool:
        raise _garbage(f"{where}: {_SHARED} is neither true nor false")
    _check_numbers(row, where)
    _check_own_use(row, where)
    # further fields of a newer exporter stay only in the object's text
    return from_object({name: value for name, value in row.items() if name in FIELD_NAMES})


def _check_numbers(row: Object, where: str) -> None:
    for name, value in row.items():
        kind = type(value)
        if kind is int or kind is float:
            if not -_LARGEST < value < _LARGEST:
                raise _garbage(f"{where}: {name[:99]!r} is no number that can be")
        elif value is not None and name in METRICS:
            raise _garbage(f"{where}: {name} is neither a number nor null")


def _check_own_use(row: Object, where: str) -> None:
    """Check the values that are measured of the container itself."""
    measured = row.get("measured")
    if measured is None:
        return
    if type(measured) is not dict:
        raise _garbage(f"{where}: measured is not a JSON object")
    for name in OWN_FAMILIES:
        value = measured.get(name)
        if value is not None and (type(value) not in (int, float) or not 0 <= value < _LARGEST):
            raise _garbage(f"{where}: {name} is no number that can be measured")


def _same_node(name: str, node: str | None, *, is_asked: bool) -> str:
    if not name or not name.isprintable():
        raise _garbage("an object's node_name is empty, or cannot be printed")
    if node is None or name == node:
        return name
    if not is_asked:
        raise _garbage(f"its objects are of several nodes: {shown(node)} and {shown(name)}")
    raise Malformed(
        "garbage",
        f"it answers as the node {shown(name)}, and is the exporter of {shown(node)}",
        remedy="give that exporter its node's name: the environment NODE_NAME (spec.nodeName), or --node-name. Where"
        " several exporters answer at one address (a Service's), name each, or use --cluster.service",
    )


def _no_duplicates(pairs: Sequence[tuple[str, Any]]) -> Object:
    # every object of every node has the same names, so each name is kept as one text
    fields = {_NAMES.get(name, name): value for name, value in pairs}
    if len(fields) != len(pairs):
        raise ValueError("a field is there twice")
    if len(fields) > MOST_FIELDS:
        raise ValueError(f"more than {MOST_FIELDS} fields")
    return fields
