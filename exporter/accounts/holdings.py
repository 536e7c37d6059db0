"""Who holds which part of which GPU, in whole numbers: what the kubelet says, of the devices that the page has."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import lcm
from types import MappingProxyType
from typing import Generic, TypeVar

from exporter.dividing.instances import USUAL_SLICES, compute_slices, slices_of_model
from exporter.model.devices import NVIDIA_UUIDS, DeviceKey, Inventory, Match, Owners
from exporter.model.pages import Subject, gpus_among
from exporter.model.pods import Owner
from exporter.model.slices import Work

# `<k>c.<c>g.<m>gb`: k of the c compute slices of a MIG instance
_COMPUTE_INSTANCE = re.compile(r"([0-9]+)c\.([0-9]+)g\.")
_MIG = "MIG-"
_GPUS_A_SLICE = 100
_SUBJECTS_A_SLICE = 1_000

Share = tuple[int, int]  # numerator and denominator
Holder = TypeVar("Holder")


@dataclass(frozen=True, slots=True)
class Device(Generic[Holder]):
    """A GPU that is not cut, or a MIG instance: its compute slices, and the part that each of its holders has.

    A part is a number of the GPU's `whole`; `part` is all of the device. `is_sampled`: the page has samples of it.
    `is_shared`: its holders have shares of it, or are several.
    """

    key: DeviceKey
    slices: int
    is_sampled: bool
    holders: Sequence[tuple[Holder, int]]
    part: int = 0
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Gpu:
    """A physical GPU: what can be held of it, and the number that is all of it; parts add up to `whole` at most.

    A MIG instance whose GPU is unknown stands for itself. `knows_slices` is off where the GPU is cut, and into how many
    slices is unknown: then it has USUAL_SLICES. `is_unnamed`: it is one of the GPUs that samples have by other names.
    """

    uuid: str
    model: str
    whole: int
    devices: tuple[Device[Owner], ...]
    knows_slices: bool
    is_unnamed: bool = False

    @property
    def held(self) -> int:
        """How much of `whole` is held."""
        return sum(part for device in self.devices for _, part in device.holders)

    @property
    def is_physical(self) -> bool:
        """Whether it is one GPU more, and neither an instance of an unknown one nor a second name of another."""
        return not self.uuid.startswith(_MIG) and not self.is_unnamed


Gpus = Mapping[str, Gpu]


def gpus_of(
    owners: Owners, subjects: Iterable[Subject], inventory: Inventory, known_models: Mapping[str, str]
) -> Work[Gpus]:
    """The GPUs of a look, by UUID and in stable order: those of samples, those that somebody holds, the inventory's.

    `known_models` are those of GPUs that the page lacks for the moment. A GPU that is cut is its instances: whoever
    holds all of it holds each that has no holder of its own.
    """
    subjects = tuple(subjects)
    models: dict[str, str] = {}
    profiles: dict[DeviceKey, str] = {}
    sampled: set[DeviceKey] = set()
    numbers: set[str] = set()  # of GPUs whose samples have no UUID
    for subject in gpus_among(subjects, owners, inventory):
        key = subject.key
        sampled.add(key)
        if subject.index and not subject.uuid:
            numbers.add(subject.index)
        models[key.uuid] = models.get(key.uuid) or subject.model
        profiles[key] = profiles.get(key) or subject.profile
        if not len(sampled) % _SUBJECTS_A_SLICE:
            yield
    for match in owners.matches:
        if match.key is not None and match.ref is not None:
            profiles[match.key] = profiles.get(match.key) or match.ref.profile
    of_inventory = tuple(_of_inventory(inventory, numbers, models, profiles))
    yield
    instances: defaultdict[str, list[DeviceKey]] = defaultdict(list)
    for key in sorted({*sampled, *owners.holders}):
        if key.instance:
            instances[key.uuid].append(key)
    yield
    # GPUs that rules name otherwise than samples do; without samples it is unknown whose names they are
    names = owners.named if subjects else ()
    on_offer = {key.uuid for key in names if not key.instance and not key.uuid.startswith(NVIDIA_UUIDS)}
    shares = _Shares(owners.matches, owners.offered)
    models = {**known_models, **{uuid: model for uuid, model in models.items() if model}}
    slices = _Slices(inventory, models, profiles)
    yield
    gpus: dict[str, Gpu] = {}
    for uuid in sorted({*(key.uuid for key in (*sampled, *owners.holders)), *of_inventory, *on_offer}):
        keys = instances.get(uuid) or [DeviceKey(uuid=uuid)]
        gpus[uuid] = _gpu(uuid, models.get(uuid, ""), keys, profiles, slices, sampled, owners, shares)
        if not len(gpus) % _GPUS_A_SLICE:
            yield
    return MappingProxyType(gpus)


def _of_inventory(
    inventory: Inventory, numbers: set[str], models: Mapping[str, str], profiles: dict[DeviceKey, str]
) -> Iterable[str]:
    """The UUIDs of an inventory's GPUs, as samples write them; `profiles` learns those that samples lack."""
    for gpu in inventory.gpus:
        if gpu.index in numbers:
            continue
        bare = gpu.uuid.removeprefix("GPU-")
        uuid = bare if bare in models else gpu.uuid
        for instance in gpu.mig:
            key = DeviceKey(uuid=uuid, instance=instance.instance_id)
            profiles[key] = profiles.get(key) or instance.profile
        yield uuid


class _Slices:
    """Into how many compute slices GPUs are cut: by NVML, else by their model, and no fewer than there are."""

    def __init__(self, inventory: Inventory, models: Mapping[str, str], profiles: Mapping[DeviceKey, str]) -> None:
        self._by_nvml = {gpu.uuid.removeprefix("GPU-"): gpu.slices for gpu in inventory.gpus}
        self._largest: dict[str, int] = {}
        for key, profile in profiles.items():
            model = models.get(key.uuid, "")
            self._largest[model] = max(self._largest.get(model, 1), compute_slices(profile))

    def of(self, uuid: str, model: str) -> tuple[int, bool]:
        """The number, and whether it is known."""
        slices = self._by_nvml.get(uuid.removeprefix("GPU-")) or slices_of_model(model)
        return max(slices or USUAL_SLICES, self._largest.get(model, 1)), slices is not None


class _Shares:
    """Which part of a device each of its holders has, by the ids that the kubelet gave out and those it offers."""

    def __init__(self, matches: Iterable[Match], offered: Mapping[tuple[str, DeviceKey], int]) -> None:
        self._offered = offered
        self._held: defaultdict[DeviceKey, defaultdict[str, Counter[Owner]]] = defaultdict(lambda: defaultdict(Counter))
        for match in matches:
            if match.key is not None:
                self._held[match.key][match.assignment.resource][match.assignment.owner] += 1

    def of(self, device: DeviceKey) -> tuple[Mapping[Owner, int], int]:
        """By owner how much of a device it holds, and the number that is all of the device (1 at least)."""
        shares: list[tuple[Owner, Share]] = []
        for resource, held in self._held[device].items() if device in self._held else ():
            each = _compute_instance(resource) or (1, max(self._offered.get((resource, device), 0), held.total()))
            shares += [(owner, (count * each[0], each[1])) for owner, count in held.items()]
        whole = lcm(*(denominator for _, (_, denominator) in shares))
        parts: Counter[Owner] = Counter()
        for owner, (numerator, denominator) in shares:
            parts[owner] += numerator * whole // denominator
        # the kubelet may give out a device as a whole and in parts at once
        return parts, max(whole, parts.total())


def _compute_instance(resource: str) -> Share | None:
    """Which part of its MIG instance a compute instance is, by the resource's name: 1 of 3 for mig-1c.3g.20gb."""
    match = _COMPUTE_INSTANCE.search(resource)
    return (min(int(match[1]), int(match[2])), int(match[2])) if match and int(match[2]) else None


def _gpu(
    uuid: str,
    model: str,
    keys: Sequence[DeviceKey],
    profiles: Mapping[DeviceKey, str],
    slices_of_gpus: _Slices,
    sampled: set[DeviceKey],
    owners: Owners,
    shares: _Shares,
) -> Gpu:
    is_cut = bool(keys[0].instance) or uuid.startswith(_MIG)
    slices = [compute_slices(profiles.get(key, "")) if is_cut else 1 for key in keys]
    all_slices, knows_slices = slices_of_gpus.of(uuid, model) if is_cut else (1, True)
    own_holders = [bool(owners.holders.get(key)) for key in keys]
    parent = DeviceKey(uuid=uuid)
    if owners.holders.get(parent) and keys[0].instance and not any(own_holders):
        # held as a whole: the instances are all of it, also where they leave slices unused
        all_slices = sum(slices)
    held = []
    for key, has_own in zip(keys, own_holders, strict=True):
        holders = {holder.owner for holder in owners.of(key)}
        parts, whole = shares.of(key if has_own else parent)
        missing = [owner for owner in holders if owner not in parts]
        if missing:  # the kubelet names no ids for them: equal parts
            parts, whole = dict.fromkeys(holders, 1), len(holders)
        held.append(({owner: parts[owner] for owner in holders}, whole))
    unit = lcm(*(whole for _, whole in held))
    devices = tuple(
        Device(
            key,
            of_gpu,
            key in sampled,
            tuple((owner, part * of_gpu * (unit // whole)) for owner, part in sorted(parts.items())),
            part=of_gpu * unit,
            is_shared=any(holder.shared for holder in owners.of(key)),
        )
        for key, of_gpu, (parts, whole) in zip(keys, slices, held, strict=True)
    )
    handed_out = sum(part for device in devices for _, part in device.holders)
    return Gpu(uuid, model, max(unit * all_slices, handed_out), devices, knows_slices, parent in owners.unnamed)
