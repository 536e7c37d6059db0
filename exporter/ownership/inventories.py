"""The inventory of a node's GPUs and MIG instances: from a user's file, from CDI specs, and from all sources together.

`{"gpus": [{"uuid": "GPU-…", "index": 0, "mig": [{"uuid": "MIG-…", "instance_id": 3, "profile": "1g.10gb"}]}]}` is a
file. A GPU in it may also have a `device`: its name in device ids, if samples use another name (Intel's card1 is
pci_bdf 0000:4d:00.0).

A CDI spec (the Container Device Interface's SPEC.md) has `devices`, each with a `name` and, under `containerEdits`, its
`deviceNodes`, each with a `path` in the container and perhaps a `hostPath` outside. NVIDIA's container toolkit, its
device plugin and others name a device by its own UUID (`GPU-…`, `MIG-…`). NVIDIA's DRA driver names it by the UID of a
claim, and the kubelet hands it out by its qualified name, `<kind>=<name>`. A GPU has the node /dev/nvidia<N>; N is its
device minor. A MIG instance has the node of its GPU, and two more for the capabilities of the GPU instance and of the
compute instance: /dev/nvidia-caps/nvidia-cap<N>.

/proc/driver/nvidia-caps/mig-minors says which capability a number N is: `gpu<minor>/gi<G>/access <N>` and
`gpu<minor>/gi<G>/ci<C>/access <N>`, where samples call G GPU_I_ID. It lists all instances that could exist, in
thousands of lines.

A source may know only a part: the driver says which GPU a device node belongs to, a CDI spec which device nodes a MIG
instance has. The user's file wins in all that it says. If other sources contradict each other, the thing that they
disagree about is left out: no owner is better than a wrong owner.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from itertools import chain
from typing import Any, Generic, NamedTuple, TypeVar

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, mappings, text
from exporter.model.devices import NO_PLACES, CdiPlace, CdiPlaces, Inventory, InventoryDoubt, InventoryGpu, MigInstance
from exporter.reading import Invalid, closed, each, shown, whole
from exporter.reading import text as name_reader

MOST_DEVICES = 4096  # devices of a spec; 16 GPUs with 7 instances each, by two names each, make 226
MOST_NODES = 64  # device nodes of a GPU or a MIG instance; usually 1 to 5
_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME = re.compile(rf"(?:GPU|MIG)-{_UUID}")
# a driver in a container has its device nodes below a root of its own
_GPU_NODE = re.compile(r"(?:/[^\n]*)?/dev/nvidia([0-9]{1,6})")
_CAP_NODE = re.compile(r"(?:/[^\n]*)?/dev/nvidia-caps/nvidia-cap([0-9]{1,6})")
_CAP_LINE = re.compile(r"^gpu([0-9]{1,6})/gi([0-9]{1,6})(?:/ci[0-9]{1,6})?/access ([0-9]{1,6})$", re.MULTILINE)
_WRITE_ANEW = "have the CDI specs written anew (nvidia-ctk cdi generate), and remove those that nobody writes any more"


class CdiDevice(NamedTuple):
    """A device of a spec: the numbers of its nodes /dev/nvidia<N> and /dev/nvidia-caps/nvidia-cap<N>.

    It has the UUID of a GPU or of a MIG instance. Otherwise it has a qualified name, and may have no such node.
    """

    uuid: str
    minors: frozenset[int]
    caps: frozenset[int]
    name: str = ""


class CutPlace(NamedTuple):
    """A GPU instance: the device minor of its GPU, and its GPU instance id."""

    minor: int
    instance: int

    def __str__(self) -> str:
        return f"GPU instance {self.instance} of nvidia{self.minor}"


def read_spec(content: object, most: int = MOST_DEVICES) -> tuple[CdiDevice, ...]:
    """The devices of a spec, at most `most`. A device that is named by a UUID counts only if it has a node of NVIDIA's.

    Raises ValueError: the content has not the form of a spec, or has too many devices.
    """
    kind = text(mapping(content), "kind")
    devices = mapping(content).get("devices")
    if not isinstance(devices, list):
        raise ValueError("it has no list `devices`")  # noqa: TRY004 - the caller words it
    if len(devices) > MOST_DEVICES:
        raise ValueError(f"it has {len(devices)} devices; {MOST_DEVICES} are read")
    devices_read = tuple(filter(None, (_device(kind, content) for content in devices)))
    if len(devices_read) > most:
        raise ValueError(f"all specs together have too many devices: {most} more are read")
    return devices_read


def _device(kind: str, content: object) -> CdiDevice | None:
    name = text(mapping(content), "name")
    edits = mapping(content, "containerEdits")
    paths = [_paths(node) for node in mappings(edits, "deviceNodes", MOST_NODES)]
    minors = _numbers(_GPU_NODE, paths)
    caps = _numbers(_CAP_NODE, paths)
    if _NAME.fullmatch(name):
        return CdiDevice(uuid=name, minors=minors, caps=caps) if minors or caps else None
    if kind and name:
        return CdiDevice(uuid="", minors=minors, caps=caps, name=f"{kind}={name}")
    return None


def _paths(node: AnyObject) -> tuple[str, ...]:
    """The paths of a device node: in the container and, if it differs, on the host."""
    return tuple(path for path in (node.get("path"), node.get("hostPath")) if isinstance(path, str))


def _numbers(form: re.Pattern[str], paths: Iterable[tuple[str, ...]]) -> frozenset[int]:
    """The numbers in the paths of this form, one of each node."""
    matches = (next(filter(None, map(form.fullmatch, of_node)), None) for of_node in paths)
    return frozenset(int(match[1]) for match in matches if match)


def read_mig_minors(text: str, wanted: AbstractSet[int]) -> Mapping[int, CutPlace]:
    """The GPU instances of the capabilities with these numbers."""
    places: dict[int, CutPlace] = {}
    for numbers in _CAP_LINE.findall(text):
        minor, instance, cap = map(int, numbers)
        if cap in wanted:
            places[cap] = CutPlace(minor, instance)
    return places


def inventory_of(specs: Mapping[str, Iterable[CdiDevice]], places: Mapping[int, CutPlace]) -> Inventory:
    """The inventory made of these specs, by file, and these places of capabilities. Parents have only a device name."""
    answers = _AnswersOfSpecs(places)
    for file, devices in specs.items():
        for device in devices:
            answers.add(device, file)
    return answers.inventory()


class _AnswersOfSpecs:
    """The specs' answers about GPUs, about MIG instances and about devices with a qualified name."""

    def __init__(self, places: Mapping[int, CutPlace]) -> None:
        self._places = places
        self._gpus: defaultdict[str, _Votes[str]] = defaultdict(_Votes)  # UUID → device names
        self._instances: defaultdict[str, _Votes[CutPlace]] = defaultdict(_Votes)
        self._by_name: defaultdict[str, _Votes[CdiPlace | None]] = defaultdict(_Votes)
        self._mixed: list[InventoryDoubt] = []

    def add(self, device: CdiDevice, file: str) -> None:
        """Take in a device of a file."""
        cut = {self._places[cap] for cap in device.caps if cap in self._places}
        if device.name:
            self._by_name[device.name].add(_place(device, cut), file)
        elif device.uuid.startswith("GPU-"):
            for minor in device.minors:
                self._gpus[device.uuid].add(f"nvidia{minor}", file)
        elif len(cut) > 1 or (cut and device.minors - {place.minor for place in cut}):
            self._mixed.append(_mixed(device.uuid, file))
        else:
            for place in cut:
                self._instances[device.uuid].add(place, file)

    def inventory(self) -> Inventory:
        """The inventory, without that on which specs contradict each other."""
        for uuid in chain.from_iterable(doubt.leaves_out for doubt in self._mixed):
            self._instances.pop(uuid, None)
        cut: dict[int, list[MigInstance]] = {}
        for uuid, answers in sorted(self._instances.items()):
            if answers.agreed is not None:
                instance = MigInstance(uuid=uuid, instance_id=str(answers.agreed.instance))
                cut.setdefault(answers.agreed.minor, []).append(instance)
        return Inventory(
            gpus=(
                *(InventoryGpu(uuid=uuid, device=of_gpu.agreed or "") for uuid, of_gpu in sorted(self._gpus.items())),
                *(InventoryGpu(uuid="", device=f"nvidia{minor}", mig=tuple(mig)) for minor, mig in sorted(cut.items())),
            ),
            doubts=(*self._mixed, *self._contradictions()),
            places={name: of_name.agreed for name, of_name in self._by_name.items()},
        )

    def _contradictions(self) -> Iterator[InventoryDoubt]:
        every: Iterable[tuple[str, _Votes[Any]]] = chain(
            self._instances.items(), self._gpus.items(), self._by_name.items()
        )
        for name, answers in every:
            if len(answers.answers) > 1 and None not in answers.answers:
                yield _contradiction(name, answers.answers)


def _place(device: CdiDevice, cut: AbstractSet[CutPlace]) -> CdiPlace | None:
    """The place to which a device's nodes lead; None if there are several, or if the instance is not known.

    `cut` are the GPU instances to which its capabilities lead.
    """
    minors = device.minors | {place.minor for place in cut}
    if len(minors) > 1 or len(cut) > 1 or (device.caps and not cut):
        return None
    return _cdi_place("".join(map(str, minors)), "".join(str(place.instance) for place in cut))


@lru_cache(maxsize=1024)
def _cdi_place(minor: str, instance: str) -> CdiPlace:
    """The same object for the same place, since places are compared for every new claim."""
    return CdiPlace(minor=minor, instance=instance)


def _mixed(uuid: str, file: str) -> InventoryDoubt:
    says = f"{uuid}: {file} gives it device nodes of several GPUs or GPU instances"
    return InventoryDoubt(trouble=Trouble("", says, _WRITE_ANEW), leaves_out=frozenset({uuid}))


def _contradiction(uuid: str, answers: Mapping[Any, Iterable[str]]) -> InventoryDoubt:
    by_whom = ", ".join(f"{' and '.join(files)} says it is {where}" for where, files in answers.items())
    leaves_out = frozenset({uuid} if uuid.startswith("MIG-") else ())
    return InventoryDoubt(trouble=Trouble("", f"{uuid}: {by_whom}", _WRITE_ANEW), leaves_out=leaves_out)


T = TypeVar("T")
_ONE_IS_OLD = (
    "one of them is out of date: bring it up to date, or give --inventory.file the node's layout, which wins where it"
    " speaks"
)
_NO_PARENT = (
    "does the driver list its GPUs? Mount nothing over /proc/driver/nvidia, or give --inventory.file the node's layout"
)


class SourceInventory(NamedTuple):
    """The inventory of one source. `wins` is on for the user's file."""

    name: str
    inventory: Inventory
    wins: bool = False


class _InstancePlace(NamedTuple):
    parent: str
    instance: str

    def __str__(self) -> str:
        return f"GPU instance {self.instance} of {self.parent}"


class _Votes(Generic[T]):
    """The parts' answers to one question, the parts that give each of them, and the answer of a part that wins."""

    def __init__(self) -> None:
        self.answers: dict[T, dict[str, None]] = {}  # answer → the names of the parts, in order
        self.winner: T | None = None

    def add(self, answer: T, by: str, *, wins: bool = False) -> None:
        self.answers.setdefault(answer, {})[by] = None
        if wins and self.winner is None:
            self.winner = answer

    @property
    def agreed(self) -> T | None:
        """The winner's answer, or else the only answer; None if the answers contradict each other."""
        if self.winner is not None:
            return self.winner
        return next(iter(self.answers)) if len(self.answers) == 1 else None

    @property
    def words(self) -> str:
        """A text that says which part gives which answer; "" if all give the same."""
        if len(self.answers) == 1:
            return ""
        answers = ", ".join(f"{' and '.join(by)} says {answer}" for answer, by in self.answers.items())
        return answers if self.winner is None else f"{answers}; {self.winner} counts"


class _AllVotes:
    """All answers of the parts, and those of them on which the inventory can rely."""

    def __init__(self, parts: Sequence[SourceInventory]) -> None:
        self.parts = parts
        self.gpus: dict[str, dict[str, None]] = {}  # UUID → the names of the parts that have it, in order
        self.uuids: dict[str, _Votes[str]] = {}  # device name → UUIDs
        self.devices: dict[str, _Votes[str]] = {}  # UUID → device names
        self.instances: dict[str, _Votes[_InstancePlace]] = {}  # MIG UUID → places
        self.homeless: dict[str, set[str]] = {}  # device name without a GPU → MIG UUIDs
        for part in parts:
            self._add_gpus(part)
        for part in parts:
            self._add_instances(part)

    def parent(self, gpu: InventoryGpu) -> str:
        """The UUID of a GPU, even if a part names it only by its device; "" if it is not certain."""
        if gpu.uuid:
            return gpu.uuid
        uuid = self.uuids[gpu.device].agreed if gpu.device in self.uuids else None
        if uuid is None or self.devices[uuid].agreed != gpu.device:
            return ""
        return uuid

    def device(self, uuid: str) -> str:
        """The device name of a GPU; "" if it is not certain. A name of two GPUs counts for neither."""
        device = self.devices[uuid].agreed if uuid in self.devices else None
        if device is None or self.uuids[device].winner not in (None, uuid):
            return ""
        return device

    def _add_gpus(self, part: SourceInventory) -> None:
        for gpu in part.inventory.gpus:
            if not gpu.uuid:
                continue
            self.gpus.setdefault(gpu.uuid, {})[part.name] = None
            if gpu.device:
                self.uuids.setdefault(gpu.device, _Votes()).add(gpu.uuid, part.name, wins=part.wins)
                self.devices.setdefault(gpu.uuid, _Votes()).add(gpu.device, part.name, wins=part.wins)

    def _add_instances(self, part: SourceInventory) -> None:
        for gpu in part.inventory.gpus:
            parent = self.parent(gpu)
            for mig in gpu.mig:
                if parent:
                    self.gpus.setdefault(parent, {})
                    answers = self.instances.setdefault(mig.uuid, _Votes())
                    answers.add(_InstancePlace(parent, mig.instance_id), part.name, wins=part.wins)
                else:
                    self.homeless.setdefault(gpu.device, set()).add(mig.uuid)


def put_together(parts: Sequence[SourceInventory]) -> Inventory:
    """One inventory made of all parts, the best part first. It lacks GPUs whose UUID no part gives."""
    answers = _AllVotes(parts)
    instances = _instances(answers)
    gpus = [gpu for part in parts for gpu in part.inventory.gpus]
    indices = {gpu.uuid: gpu.index for gpu in reversed(gpus) if gpu.uuid and gpu.index}  # the value of the best part
    slices = {gpu.uuid: gpu.slices for gpu in gpus if gpu.slices}
    addresses = {gpu.uuid: gpu.address for gpu in gpus if gpu.address}
    serials = {gpu.uuid: gpu.serial for gpu in gpus if gpu.serial}
    return Inventory(
        gpus=tuple(
            InventoryGpu(
                uuid=uuid,
                index=indices.get(uuid, ""),
                device=answers.device(uuid),
                mig=instances.get(uuid, ()),
                slices=slices.get(uuid),
                sources=tuple(by),
                address=addresses.get(uuid, ""),
                serial=serials.get(uuid, ""),
            )
            for uuid, by in answers.gpus.items()
        ),
        doubts=(*(doubt for part in parts for doubt in part.inventory.doubts), *_doubts(answers)),
        places=places_among(part.inventory for part in parts),
    )


def places_among(inventories: Iterable[Inventory]) -> CdiPlaces:
    """The places of CDI names, which only one source reads."""
    return next((inventory.places for inventory in inventories if inventory.places), NO_PLACES)


def _instances(all_answers: _AllVotes) -> Mapping[str, tuple[MigInstance, ...]]:
    """The instances on whose places the parts agree, by their GPUs' UUIDs."""
    gpus = (gpu for part in reversed(all_answers.parts) for gpu in part.inventory.gpus)
    profiles = {mig.uuid: mig.profile for gpu in gpus for mig in gpu.mig if mig.profile}
    instances: dict[str, tuple[MigInstance, ...]] = {}
    for uuid, answers in all_answers.instances.items():
        place = answers.agreed
        if place is not None:
            instance = MigInstance(
                uuid=uuid,
                instance_id=place.instance,
                profile=profiles.get(uuid, ""),
                sources=tuple(answers.answers[place]),
            )
            instances[place.parent] = (*instances.get(place.parent, ()), instance)
    return instances


def _doubts(all_answers: _AllVotes) -> Iterator[InventoryDoubt]:
    """The contradictions between parts, and the instances whose GPU no part knows for sure."""
    for name, answers in chain(all_answers.uuids.items(), all_answers.devices.items()):
        if answers.words:
            yield InventoryDoubt(trouble=Trouble("", f"{name}: {answers.words}", _ONE_IS_OLD))
    for uuid, places in all_answers.instances.items():
        if places.words:
            yield InventoryDoubt(
                trouble=Trouble("", f"{uuid}: {places.words}", _ONE_IS_OLD),
                leaves_out=frozenset({uuid} if places.agreed is None else ()),
            )
    for device, uuids in sorted(all_answers.homeless.items()):
        left_out = frozenset(uuid for uuid in uuids if uuid not in all_answers.instances)
        if left_out:
            says = f"which GPU {device or 'their GPU'} is, is not known for sure: {len(left_out)} MIG instances of it"
            yield InventoryDoubt(
                trouble=Trouble("", f"{says} are left out", _NO_PARENT),
                leaves_out=left_out,
                is_contradiction=device in all_answers.uuids,
            )


_DIGITS = re.compile(r"[0-9]{1,9}")
_WHOLE = whole(0, 999_999_999)


def _number(value: object, path: str) -> str:
    """The text of a whole number (given as number or text) as samples' labels write it: without leading zeros."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    return str(_WHOLE(value, path))


_MOST_CHARS = 256
_A_NAME = name_reader(r"[\s\S]+", "a name", _MOST_CHARS)
_MIG = closed(
    MigInstance,
    {"uuid": _A_NAME, "instance_id": _number},
    {"profile": name_reader(r"[\s\S]*", "a profile such as 1g.10gb", _MOST_CHARS)},
)
_GPU = closed(InventoryGpu, {"uuid": _A_NAME}, {"index": _number, "device": _A_NAME, "mig": each(_MIG, MOST_DEVICES)})
_FILE = closed(Inventory, {"gpus": each(_GPU, MOST_DEVICES)}, {})


def read_inventory(content: object) -> Inventory:
    """The inventory of a parsed YAML or JSON file. Raises Invalid: the file has another form, or names a UUID twice."""
    inventory: Inventory = _FILE(content, "")
    uuids = Counter[str]()
    for gpu in inventory.gpus:
        uuids.update((gpu.uuid, *(mig.uuid for mig in gpu.mig)))
    for uuid, times in uuids.items():
        if times > 1:
            raise Invalid("", f"{shown(uuid)} is there {times} times; name each GPU and each MIG instance once")
    return inventory
