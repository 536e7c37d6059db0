"""What CDI specs and the driver's list of MIG capabilities say of a node's GPUs: an inventory.

A spec (the Container Device Interface's SPEC.md) has `devices`, each with a `name` and, under `containerEdits`, its
`deviceNodes`, each with a `path` in the container and perhaps a `hostPath` outside. NVIDIA's container toolkit, its
device plugin and others name a device by its UUID (`GPU-…`, `MIG-…`); all other names (`0`, `0:1`, `all`) say less. A
GPU has the node /dev/nvidia<N>, N being its device minor. A MIG instance has that of its GPU, and two more for its
capabilities, those of the GPU instance and of the compute instance: /dev/nvidia-caps/nvidia-cap<N>.

/proc/driver/nvidia-caps/mig-minors says which capability a number N is: `gpu<minor>/gi<G>/access <N>` and
`gpu<minor>/gi<G>/ci<C>/access <N>`, G being what samples call GPU_I_ID. It lists all that could be, thousands of lines.
"""

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from exporter.model.devices import Inventory, InventoryDoubt, InventoryGpu, MigInstance

MOST_DEVICES = 4096  # of a spec: 16 GPUs in 7 instances, by two names each, are 226
MOST_NODES = 64  # of a device that is a GPU or a MIG instance; usually 1 to 5
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"(?:GPU|MIG)-{_UUID}")
# a containerised driver has its nodes below a root of its own
_GPU_NODE = re.compile(r"(?:/[^\n]*)?/dev/nvidia([0-9]{1,6})")
_CAP_NODE = re.compile(r"(?:/[^\n]*)?/dev/nvidia-caps/nvidia-cap([0-9]{1,6})")
_CAP_LINE = re.compile(r"^gpu([0-9]{1,6})/gi([0-9]{1,6})(?:/ci[0-9]{1,6})?/access ([0-9]{1,6})$", re.MULTILINE)
_WRITE_ANEW = "have the CDI specs written anew (nvidia-ctk cdi generate), and remove those that nobody writes any more"


class CdiDevice(NamedTuple):
    """A GPU or a MIG instance of a spec: the numbers of its nodes /dev/nvidia<N> and /dev/nvidia-caps/nvidia-cap<N>."""

    uuid: str
    minors: frozenset[int]
    caps: frozenset[int]


class Place(NamedTuple):
    """A GPU instance: the device minor of its GPU, and its GPU instance id."""

    minor: int
    instance: int

    def __str__(self) -> str:
        return f"GPU instance {self.instance} of nvidia{self.minor}"


def read_spec(content: object, most: int = MOST_DEVICES) -> tuple[CdiDevice, ...]:
    """The devices of a spec that are named by a UUID and have nodes of NVIDIA's, at most so many.

    Raises:
        ValueError: it has another form than a spec, or too many devices.
    """
    devices = content.get("devices") if isinstance(content, Mapping) else None
    if not isinstance(devices, list):
        raise ValueError("it has no list `devices`")  # noqa: TRY004 - the caller words it
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"it has {len(devices)} devices; {MOST_DEVICES} are read")
    found = tuple(device for device in map(_device, devices) if device)
    if len(found) > most:
        raise ValueError(f"all specs together have too many GPUs and MIG instances: {most} more are read")
    return found


def _device(content: object) -> CdiDevice | None:
    name = content.get("name") if isinstance(content, Mapping) else None
    if not isinstance(content, Mapping) or not isinstance(name, str) or not _NAME.fullmatch(name):
        return None
    edits = content.get("containerEdits")
    nodes = edits.get("deviceNodes") if isinstance(edits, Mapping) else None
    paths = [_paths(node) for node in nodes[:MOST_NODES]] if isinstance(nodes, list) else []
    minors, caps = _numbers(_GPU_NODE, paths), _numbers(_CAP_NODE, paths)
    return CdiDevice(uuid=name, minors=minors, caps=caps) if minors or caps else None


def _paths(node: object) -> tuple[str, ...]:
    """Where a node is in the container and, where the driver is in one itself, outside."""
    both = (node.get("path"), node.get("hostPath")) if isinstance(node, Mapping) else ()
    return tuple(path for path in both if isinstance(path, str))


def _numbers(form: re.Pattern[str], paths: Iterable[tuple[str, ...]]) -> frozenset[int]:
    matches = (next(filter(None, map(form.fullmatch, both)), None) for both in paths)
    return frozenset(int(match[1]) for match in matches if match)


def read_mig_minors(text: str, wanted: AbstractSet[int]) -> Mapping[int, Place]:
    """The GPU instances that capabilities of these numbers are of."""
    found = ((int(cap), minor, instance) for minor, instance, cap in _CAP_LINE.findall(text))
    return {cap: Place(int(minor), int(instance)) for cap, minor, instance in found if cap in wanted}


def inventory_of(specs: Mapping[str, Iterable[CdiDevice]], places: Mapping[int, Place]) -> Inventory:
    """What specs, by file, and the places of capabilities say together. A parent is known by its device name alone."""
    gpus: dict[str, dict[str, list[str]]] = {}  # UUID → device name → the files that say so
    instances: dict[str, dict[Place, list[str]]] = {}
    doubts = []
    for file, devices in specs.items():
        for device in devices:
            if device.uuid.startswith("GPU-"):
                for minor in device.minors:
                    gpus.setdefault(device.uuid, {}).setdefault(f"nvidia{minor}", []).append(file)
                continue
            of = {places[cap] for cap in device.caps if cap in places}
            if len(of) > 1 or (of and device.minors - {place.minor for place in of}):
                doubts.append(_mixed(device.uuid, file))
            for place in of:
                instances.setdefault(device.uuid, {}).setdefault(place, []).append(file)
    mixed = {uuid for doubt in doubts for uuid in doubt.leaves_out}
    doubts += (_contradiction(uuid, said) for uuid, said in instances.items() if len(said) > 1 and uuid not in mixed)
    doubts += (_contradiction(uuid, said) for uuid, said in gpus.items() if len(said) > 1)
    cut: dict[int, list[MigInstance]] = {}
    for uuid, said in sorted(instances.items()):
        if len(said) == 1 and uuid not in mixed:
            (place,) = said
            cut.setdefault(place.minor, []).append(MigInstance(uuid=uuid, instance_id=str(place.instance)))
    return Inventory(
        gpus=(
            *(
                InventoryGpu(uuid=uuid, device=next(iter(said)) if len(said) == 1 else "")
                for uuid, said in sorted(gpus.items())
            ),
            *(InventoryGpu(uuid="", device=f"nvidia{minor}", mig=tuple(mig)) for minor, mig in sorted(cut.items())),
        ),
        doubts=tuple(doubts),
    )


def _mixed(uuid: str, file: str) -> InventoryDoubt:
    says = f"{uuid}: {file} gives it device nodes of several GPUs or GPU instances"
    return InventoryDoubt(says=says, remedy=_WRITE_ANEW, leaves_out=frozenset({uuid}))


def _contradiction(uuid: str, said: Mapping[str, list[str]] | Mapping[Place, list[str]]) -> InventoryDoubt:
    by_whom = ", ".join(f"{' and '.join(files)} says it is {where}" for where, files in said.items())
    leaves_out = frozenset({uuid} if uuid.startswith("MIG-") else ())
    return InventoryDoubt(says=f"{uuid}: {by_whom}", remedy=_WRITE_ANEW, leaves_out=leaves_out)
