"""What several sources know of a node's GPUs, put together into one inventory.

Each source may know a part: the driver which GPU a device node belongs to, a CDI spec which device nodes a MIG instance
has. A user's file wins where it speaks. Where others contradict each other nobody wins, and what they disagree about is
left out: no owner is better than a wrong one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from exporter.model.devices import Inventory, InventoryDoubt, InventoryGpu, MigInstance

T = TypeVar("T")
_ONE_IS_OLD = (
    "one of them is out of date: bring it up to date, or give --inventory.file the node's layout, which wins where it"
    " speaks"
)
_NO_PARENT = (
    "does the driver list its GPUs? Mount nothing over /proc/driver/nvidia, or give --inventory.file the node's layout"
)


class Part(NamedTuple):
    """What one source knows. `wins` is on for the user's own word."""

    name: str
    inventory: Inventory
    wins: bool = False


class _Place(NamedTuple):
    parent: str
    instance: str

    def __str__(self) -> str:
        return f"GPU instance {self.instance} of {self.parent}"


class _Said(Generic[T]):
    """What parts say of one thing: each answer, and who gives it; the winner's, if there is one."""

    def __init__(self) -> None:
        self.answers: dict[T, list[str]] = {}
        self.winner: T | None = None

    def add(self, answer: T, part: Part) -> None:
        by = self.answers.setdefault(answer, [])
        if part.name not in by:
            by.append(part.name)
        if part.wins and self.winner is None:
            self.winner = answer

    @property
    def agreed(self) -> T | None:
        """The winner's answer, or else the only one; None where they contradict each other."""
        if self.winner is not None:
            return self.winner
        return next(iter(self.answers)) if len(self.answers) == 1 else None

    @property
    def words(self) -> str:
        """Who says what; "" where all say the same."""
        if len(self.answers) == 1:
            return ""
        said = ", ".join(f"{' and '.join(by)} says {answer}" for answer, by in self.answers.items())
        return said if self.winner is None else f"{said}; {self.winner} counts"


class _Known:
    """All that the parts say, thing by thing, and what of it can be relied on."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = parts
        self.gpus: dict[str, list[str]] = {}  # UUID → who knows it
        self.uuids: dict[str, _Said[str]] = {}  # of device names
        self.devices: dict[str, _Said[str]] = {}  # of UUIDs
        self.instances: dict[str, _Said[_Place]] = {}  # of MIG UUIDs
        self.homeless: dict[str, set[str]] = {}  # device name without a GPU → MIG UUIDs
        for part in parts:
            self._hear_of_gpus(part)
        for part in parts:
            self._hear_of_instances(part)

    def parent(self, gpu: InventoryGpu) -> str:
        """The UUID of a GPU that a part may know by its device alone; "" where that leads to none for sure."""
        if gpu.uuid:
            return gpu.uuid
        uuid = self.uuids[gpu.device].agreed if gpu.device in self.uuids else None
        return uuid if uuid is not None and self.devices[uuid].agreed == gpu.device else ""

    def device(self, uuid: str) -> str:
        """The device name of a GPU; "" where it is not sure. Two GPUs of one name both have it: it leads to neither."""
        device = self.devices[uuid].agreed if uuid in self.devices else None
        return device if device is not None and self.uuids[device].winner in (None, uuid) else ""

    def _hear_of_gpus(self, part: Part) -> None:
        for gpu in part.inventory.gpus:
            if not gpu.uuid:
                continue
            by = self.gpus.setdefault(gpu.uuid, [])
            if part.name not in by:
                by.append(part.name)
            if gpu.device:
                self.uuids.setdefault(gpu.device, _Said()).add(gpu.uuid, part)
                self.devices.setdefault(gpu.uuid, _Said()).add(gpu.device, part)

    def _hear_of_instances(self, part: Part) -> None:
        for gpu in part.inventory.gpus:
            parent = self.parent(gpu)
            for mig in gpu.mig:
                if parent:
                    self.gpus.setdefault(parent, [])
                    self.instances.setdefault(mig.uuid, _Said()).add(_Place(parent, mig.instance_id), part)
                else:
                    self.homeless.setdefault(gpu.device, set()).add(mig.uuid)


def put_together(parts: Sequence[Part]) -> Inventory:
    """One inventory of all parts, the best part first. A GPU that none of them knows by its UUID is not in it."""
    known = _Known(parts)
    indices, instances = _indices(parts), _instances(known)
    slices = {gpu.uuid: gpu.slices for part in parts for gpu in part.inventory.gpus if gpu.slices}
    return Inventory(
        gpus=tuple(
            InventoryGpu(
                uuid=uuid,
                index=indices.get(uuid, ""),
                device=known.device(uuid),
                mig=instances.get(uuid, ()),
                slices=slices.get(uuid),
                known_by=tuple(by),
            )
            for uuid, by in known.gpus.items()
        ),
        doubts=(*(doubt for part in parts for doubt in part.inventory.doubts), *_doubts(known)),
    )


def _indices(parts: Sequence[Part]) -> Mapping[str, str]:
    """The numbers of GPUs, by the best part that knows each."""
    return {gpu.uuid: gpu.index for part in reversed(parts) for gpu in part.inventory.gpus if gpu.uuid and gpu.index}


def _instances(known: _Known) -> Mapping[str, tuple[MigInstance, ...]]:
    """The instances whose places are agreed on, by their GPUs' UUIDs."""
    profiles = {
        mig.uuid: mig.profile
        for part in reversed(known.parts)
        for gpu in part.inventory.gpus
        for mig in gpu.mig
        if mig.profile
    }
    of: dict[str, list[MigInstance]] = {}
    for uuid, said in known.instances.items():
        place = said.agreed
        if place is not None:
            of.setdefault(place.parent, []).append(
                MigInstance(
                    uuid=uuid,
                    instance_id=place.instance,
                    profile=profiles.get(uuid, ""),
                    known_by=tuple(said.answers[place]),
                )
            )
    return {parent: tuple(mig) for parent, mig in of.items()}


def _doubts(known: _Known) -> Iterator[InventoryDoubt]:
    of_all: tuple[Mapping[str, _Said[str]] | Mapping[str, _Said[_Place]], ...] = (
        known.uuids,
        known.devices,
        known.instances,
    )
    for of in of_all:
        for what, said in of.items():
            if said.words:
                left_out = frozenset({what} if of is known.instances and said.agreed is None else ())
                yield InventoryDoubt(says=f"{what}: {said.words}", remedy=_ONE_IS_OLD, leaves_out=left_out)
    for device, uuids in sorted(known.homeless.items()):
        left_out = frozenset(uuid for uuid in uuids if uuid not in known.instances)
        if left_out:
            says = f"which GPU {device or 'their GPU'} is, is not known for sure: {len(left_out)} MIG instances of it"
            yield InventoryDoubt(
                says=f"{says} are left out",
                remedy=_NO_PARENT,
                leaves_out=left_out,
                is_contradiction=device in known.uuids,
            )
