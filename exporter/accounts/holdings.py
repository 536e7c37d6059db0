"""The parts of GPUs that containers hold, in whole numbers, for the devices of the page.

A holder's part is what its allocator granted it (dividing/granted_parts.py), else its part of the ids that the kubelet
has for the device. An allocator may grant more of a GPU than there is. Then the holders' parts still are what they were
granted, and together more than the GPU: a container's part does not change because another one comes.

Tests: tests/accounts/test_holdings.py, tests/accounts/test_histories.py, tests/sources/kubelet/test_counted_ids.py.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import lcm
from types import MappingProxyType
from typing import Generic, TypeVar

from exporter.dividing.granted_parts import Part, part_of
from exporter.dividing.instances import USUAL_SLICES, compute_slices, slices_of_model
from exporter.model.devices import NVIDIA_UUIDS, DeviceKey, Inventory, Owners, bare
from exporter.model.pages import Subject, gpus_among
from exporter.model.pods import Owner
from exporter.model.slices import Work

# `<k>c.<c>g.<m>gb`: k of the c compute slices of a MIG instance
_COMPUTE_INSTANCE = re.compile(r"([0-9]+)c\.([0-9]+)g\.")
_MIG = "MIG-"
_GPUS_A_SLICE = 100
_SUBJECTS_A_SLICE = 1_000

Holder = TypeVar("Holder")


@dataclass(frozen=True, slots=True)
class Device(Generic[Holder]):
    """A GPU without MIG instances, or a MIG instance: its compute slices, and the part that each of its holders has.

    A part is a number out of the GPU's `whole`; `part` is the whole device. `is_sampled`: the page has samples of the
    device. `is_shared`: its holders have shares of it, or there are several. `is_granted`: an allocator said the part
    of each holder, so that by these parts they also share what the device does, where nobody measures it.
    """

    key: DeviceKey
    slices: int
    is_sampled: bool
    holders: Sequence[tuple[Holder, int]]
    part: int
    is_shared: bool = False
    is_granted: bool = False


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU: its devices, and the number `whole` that stands for all of it.

    Parts add up to `whole` at most, unless an allocator granted more of the GPU than there is.

    A MIG instance whose GPU is unknown stands for itself. `knows_slices` is off if the GPU is cut and the number of its
    slices is unknown: then it has USUAL_SLICES. `is_unnamed`: it is one of the GPUs that samples have by other names.
    """

    uuid: str
    model: str
    whole: int
    devices: tuple[Device[Owner], ...]
    knows_slices: bool
    is_unnamed: bool = False

    @property
    def held(self) -> float:
        """The part of the GPU that containers hold, from 0 to 1: of an over-committed GPU nothing is left."""
        held = sum(part for device in self.devices for _, part in device.holders)
        return min(held, self.whole) / self.whole

    @property
    def is_physical(self) -> bool:
        """Whether it counts as a GPU: it is neither an instance of an unknown GPU nor a second name of another GPU."""
        return not self.uuid.startswith(_MIG) and not self.is_unnamed


Gpus = Mapping[str, Gpu]


@dataclass(slots=True)
class _SampledDevices:
    """The devices of samples: their keys, the models of GPUs by UUID, and the profiles of instances.

    `numbers` are the numbers of GPUs whose samples have no UUID.
    """

    keys: set[DeviceKey] = field(default_factory=set)
    models: dict[str, str] = field(default_factory=dict)
    profiles: dict[DeviceKey, str] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)

    def add(self, subject: Subject) -> None:
        """Note a device, whose model or profile an earlier sample may have named."""
        key = subject.key
        self.keys.add(key)
        if subject.index and not subject.uuid:
            self.numbers.add(subject.index)
        self.models[key.uuid] = self.models.get(key.uuid) or subject.model
        self.profiles[key] = self.profiles.get(key) or subject.profile


def gpus_of(
    owners: Owners,
    subjects: Iterable[Subject],
    inventory: Inventory,
    known_models: Mapping[str, str],
    memory_mib: Mapping[DeviceKey, float | None],
) -> Work[Gpus]:
    """The GPUs of samples, of holders and of the inventory at a look, by UUID and in stable order.

    `known_models` are models of GPUs that the page may lack, `memory_mib` the memory of devices of which some was
    granted. A MIG GPU is counted by its instances. Who holds all of it holds every instance without a holder.
    """
    subjects = tuple(subjects)
    sampled = _SampledDevices()
    for subject in gpus_among(subjects, owners, inventory):
        sampled.add(subject)
        if not len(sampled.keys) % _SUBJECTS_A_SLICE:
            yield
    profiles = sampled.profiles
    for match in owners.matches:
        if match.key is not None and match.ref is not None:
            profiles[match.key] = profiles.get(match.key) or match.ref.profile
    of_inventory = tuple(_of_inventory(inventory, sampled))
    yield
    keys = {*sampled.keys, *owners.holders}
    instances = _instances_of(keys)
    yield
    models = {**known_models, **{uuid: model for uuid, model in sampled.models.items() if model}}
    slices = _SliceCounts(inventory, models, profiles)
    maker = _GpuMaker(owners, sampled.keys, profiles, slices, _Shares(owners, memory_mib))
    yield
    # GPUs to which rules give other names than samples; without samples it is not known which GPUs these are
    on_offer = _named_by_rules(owners) if subjects else ()
    gpus: dict[str, Gpu] = {}
    for uuid in sorted({*(key.uuid for key in keys), *of_inventory, *on_offer}):
        of_gpu = instances.get(uuid) or [DeviceKey(uuid=uuid)]
        gpus[uuid] = maker.make(uuid, models.get(uuid, ""), of_gpu)
        if not len(gpus) % _GPUS_A_SLICE:
            yield
    return MappingProxyType(gpus)


def _instances_of(keys: Iterable[DeviceKey]) -> Mapping[str, list[DeviceKey]]:
    """The MIG instances among these devices, by their GPU's UUID and in order."""
    instances: defaultdict[str, list[DeviceKey]] = defaultdict(list)
    for key in sorted(keys):
        if key.instance:
            instances[key.uuid].append(key)
    return instances


def _named_by_rules(owners: Owners) -> set[str]:
    return {key.uuid for key in owners.named if not key.instance and not key.uuid.startswith(NVIDIA_UUIDS)}


def _of_inventory(inventory: Inventory, sampled: _SampledDevices) -> Iterable[str]:
    """The UUIDs of an inventory's GPUs, as samples write them. It also notes profiles that samples lack."""
    profiles = sampled.profiles
    for gpu in inventory.gpus:
        if gpu.index in sampled.numbers:
            continue
        uuid = gpu.uuid_among(sampled.models)
        for instance in gpu.mig:
            key = DeviceKey(uuid=uuid, instance=instance.instance_id)
            profiles[key] = profiles.get(key) or instance.profile
        yield uuid


class _SliceCounts:
    """The number of compute slices of GPUs: by NVML, else by the model, and at least that of the largest profile."""

    def __init__(self, inventory: Inventory, models: Mapping[str, str], profiles: Mapping[DeviceKey, str]) -> None:
        self._by_nvml = {bare(gpu.uuid): gpu.slices for gpu in inventory.gpus}
        self._largest: dict[str, int] = {}
        for key, profile in profiles.items():
            model = models.get(key.uuid, "")
            self._largest[model] = max(self._largest.get(model, 1), compute_slices(profile))

    def of(self, uuid: str, model: str) -> tuple[int, bool]:
        """The number of a GPU's slices, and whether it is known."""
        slices = self._by_nvml.get(bare(uuid)) or slices_of_model(model)
        return max(slices or USUAL_SLICES, self._largest.get(model, 1)), slices is not None


class _Shares:
    """The part of a device that each holder has: what it was granted, else by the ids that the kubelet has for it."""

    def __init__(self, owners: Owners, memory_mib: Mapping[DeviceKey, float | None]) -> None:
        self._offered = owners.offered
        self._held: defaultdict[DeviceKey, defaultdict[str, Counter[Owner]]] = defaultdict(lambda: defaultdict(Counter))
        for match in owners.matches:
            if match.key is not None:
                self._held[match.key][match.assignment.resource][match.assignment.owner] += match.assignment.count
        self._granted: dict[DeviceKey, dict[Owner, Part]] = {}
        for key, holders in owners.holders.items():
            # nobody shares the MIG instances that an allocator hands out, and what it says of their memory is rounded
            if not key.instance and not key.uuid.startswith(_MIG):
                parts = {holder.owner: part_of(holder.grant, memory_mib.get(key)) for holder in holders}
                granted = {owner: part for owner, part in parts.items() if part is not None}
                if granted:
                    self._granted[key] = granted

    def are_granted(self, device: DeviceKey, holders: AbstractSet[Owner]) -> bool:
        """Whether an allocator granted a part of the device to each of these holders."""
        return device in self._granted and self._granted[device].keys() >= holders

    def of(self, device: DeviceKey) -> tuple[Mapping[Owner, int], int]:
        """The part of a device that each owner holds, and the number that stands for all of the device (1 at least)."""
        granted = self._granted.get(device, {})
        shares = [*granted.items()]
        shares += [(owner, share) for owner, share in self._by_ids(device) if owner not in granted]
        whole = lcm(*(denominator for _, (_, denominator) in shares))
        parts: Counter[Owner] = Counter()
        for owner, (numerator, denominator) in shares:
            parts[owner] += numerator * whole // denominator
        if granted:
            return parts, whole
        # the kubelet may hand out a device as a whole and in parts at the same time
        return parts, max(whole, parts.total())

    def _by_ids(self, device: DeviceKey) -> Iterator[tuple[Owner, Part]]:
        """The parts of a device that the kubelet has handed out, resource by resource."""
        if device not in self._held:
            return
        for resource, held in self._held[device].items():
            on_offer = max(self._offered.get((resource, device), 0), held.total())
            numerator, denominator = _compute_instance(resource) or (1, on_offer)
            for owner, count in held.items():
                yield owner, (count * numerator, denominator)


def _compute_instance(resource: str) -> Part | None:
    """The part of its MIG instance that a compute instance is, by the resource's name: 1 of 3 for mig-1c.3g.20gb."""
    match = _COMPUTE_INSTANCE.search(resource)
    if match is None:
        return None
    own = int(match[1])
    of_instance = int(match[2])
    return (min(own, of_instance), of_instance) if of_instance else None


@dataclass(frozen=True, slots=True)
class _GpuMaker:
    """A maker of the GPUs of one look. `sampled` are the devices of samples, `profiles` the profiles of instances."""

    owners: Owners
    sampled: AbstractSet[DeviceKey]
    profiles: Mapping[DeviceKey, str]
    slices: _SliceCounts
    shares: _Shares

    def make(self, uuid: str, model: str, keys: Sequence[DeviceKey]) -> Gpu:
        """A GPU whose devices have these keys: its own key, or the keys of its instances."""
        holders = self.owners.holders
        parent = DeviceKey(uuid=uuid)
        is_cut = bool(keys[0].instance) or uuid.startswith(_MIG)
        slices = [compute_slices(self.profiles.get(key, "")) if is_cut else 1 for key in keys]
        all_slices, knows_slices = self.slices.of(uuid, model) if is_cut else (1, True)
        is_held_whole = holders.get(parent) and not any(holders.get(key) for key in keys)
        if is_held_whole:
            # together the instances count as the whole GPU, even if they leave slices unused
            all_slices = sum(slices)
        held = [self._parts(key, key if holders.get(key) else parent) for key in keys]
        unit = lcm(*(whole for _, whole in held))
        devices = tuple(
            self._device(key, of_gpu, unit, parts, whole)
            for key, of_gpu, (parts, whole) in zip(keys, slices, held, strict=True)
        )
        whole_gpu = unit * all_slices
        return Gpu(
            uuid,
            model,
            _at_least_held(whole_gpu, devices) if is_cut else whole_gpu,
            devices,
            knows_slices,
            parent in self.owners.unnamed,
        )

    def _device(self, key: DeviceKey, slices: int, unit: int, parts: Mapping[Owner, int], whole: int) -> Device[Owner]:
        """A device of `slices`, whose holders have `parts` of `whole`. The whole GPU counts `unit` for each slice."""
        of_part = slices * (unit // whole)
        holders = tuple((owner, part * of_part) for owner, part in sorted(parts.items()))
        is_shared = any(holder.shared for holder in self.owners.of(key))
        is_granted = bool(holders) and self.shares.are_granted(key, parts.keys())
        return Device(key, slices, key in self.sampled, holders, slices * unit, is_shared, is_granted)

    def _parts(self, key: DeviceKey, held: DeviceKey) -> tuple[Mapping[Owner, int], int]:
        """The part of a device that each owner holds, and the number for all of it. `held` is the device or its GPU."""
        holders = {holder.owner for holder in self.owners.of(key)}
        parts, whole = self.shares.of(held)
        if any(owner not in parts for owner in holders):
            # equal parts, since the kubelet names no ids for them
            return dict.fromkeys(holders, 1), len(holders)
        return {owner: parts[owner] for owner in holders}, whole


def _at_least_held(whole: int, devices: Iterable[Device[Owner]]) -> int:
    """The number for a whole GPU that is cut: it may have more slices than models like it are known for."""
    return max(whole, sum(part for device in devices for _, part in device.holders))
