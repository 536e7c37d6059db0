"""The GPUs that each container asked for, and its use of them, card by card. Pure.

The use of a container is the measured use of its processes. If that is unknown, and only this container holds the
device, the page's values of the device count. An unknown value is None, and so is a sum with an unknown part.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from exporter.accounts.device_values import PLACES, UTILIZATION, DeviceValues, sum_of
from exporter.accounts.holdings import Gpu, gpus_of
from exporter.dividing.granted_parts import devices_with_memory
from exporter.model.devices import CORES, CORES_OF_GPU, MEMORY, MEMORY_MIB, Assignment, DeviceKey, Inventory, Owners
from exporter.model.pages import Reading, Subject
from exporter.model.pods import Owner
from exporter.model.slices import ITEMS_A_SLICE, Work

if TYPE_CHECKING:
    from exporter.model.measured import Measured

_MIB = 2**20


@dataclass(frozen=True, slots=True)
class Card:
    """A container's use of the GPU with this index: percent of the time, and MiB. None: not known."""

    index: str
    utilization: float | None
    memory_mib: float | None


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards of a container: `each` card with a known index, its use of all cards together, and its requests.

    `asked_cards` counts physical GPUs: a share, or a MIG instance, is a part of a GPU.
    """

    each: tuple[Card, ...]
    utilization: float | None
    memory_mib: float | None
    asked_cards: float | None
    asked_memory_mib: float | None


@dataclass(slots=True)
class _Used:
    gpu: str
    utilization: float | None
    memory_mib: float | None


def cards_by_owner(
    owners: Owners,
    subjects: Iterable[Subject],
    readings: Iterable[Reading],
    inventory: Inventory,
    measured: "Measured | None",
    index_of: Mapping[str, str],
) -> Work[Mapping[Owner, Cards]]:
    """The cards of each container that holds a GPU or a part of one, in stable order.

    `subjects` are the page's subjects, `readings` its samples of FAMILIES_OF_DEVICES. `index_of` has the indices of
    GPUs by UUID.
    """
    page = DeviceValues()
    yield from page.read(readings)
    memory = {key: page.all_memory_of(key) for key in devices_with_memory(owners.holders)}
    gpus = yield from gpus_of(owners, subjects, inventory, {}, memory)
    used: defaultdict[Owner, list[_Used]] = defaultdict(list)
    for number, (key, holders) in enumerate(owners.holders.items(), start=1):
        if not number % ITEMS_A_SLICE:
            yield
        is_alone = len(holders) == 1 and not holders[0].shared
        for holder in holders:
            used[holder.owner].append(_use(key, holder.owner, page if is_alone else _NO_PAGE, measured))
    yield
    asked = _asked(owners, gpus.values(), page)
    yield
    _add_units(owners, gpus.values(), page, measured, used, asked)
    cards: dict[Owner, Cards] = {}
    for number, owner in enumerate(sorted(asked), start=1):
        cards[owner] = _cards(used[owner], asked[owner], index_of)
        if not number % ITEMS_A_SLICE:
            yield
    return cards


_NO_PAGE = DeviceValues()


def _use(key: DeviceKey, owner: Owner, page: DeviceValues, measured: "Measured | None") -> _Used:
    """The use of a device by a container: as NVML measured it, else as the page has it."""
    use = measured.uses.get((key, owner)) if measured else None
    memory = use.memory_bytes / _MIB if use and use.memory_bytes is not None else page.memory_of(key)
    if _is_instance(key):
        # neither NVML nor dcgm-exporter measures an instance's part of the card's time
        return _Used(key.uuid, None, memory)
    busy = page.of(key, UTILIZATION)
    if use and use.sm_ratio is not None:
        busy = round(use.sm_ratio * 100, PLACES)
    return _Used(key.uuid, busy, memory)


def _is_instance(key: DeviceKey) -> bool:
    return bool(key.instance) or key.uuid.startswith("MIG-")


_Asked = tuple[float | None, float | None]


def _asked(owners: Owners, gpus: Iterable[Gpu], page: DeviceValues) -> dict[Owner, _Asked]:
    """The cards and the memory that each container asked for; None: not known.

    What an allocator granted counts as it stands, and what it does not say follows from the part of the device.
    """
    cards: defaultdict[Owner, list[float | None]] = defaultdict(list)
    memory: defaultdict[Owner, list[float | None]] = defaultdict(list)
    for gpu in gpus:
        for device in gpu.devices:
            is_known = gpu.knows_slices and (gpu.is_physical or not _is_instance(device.key))
            all_memory = page.all_memory_of(device.key)
            grants = {holder.owner: holder.grant for holder in owners.of(device.key)}
            for owner, part in device.holders:
                grant = grants.get(owner)
                if grant is not None and grant.cores_percent:
                    cards[owner].append(grant.cores_percent / CORES_OF_GPU)
                else:
                    cards[owner].append(part / gpu.whole if is_known else None)
                if grant is not None and grant.memory_mib:
                    memory[owner].append(float(grant.memory_mib))
                else:
                    memory[owner].append(None if all_memory is None else all_memory * part / device.part)
    return {owner: (sum_of(cards[owner]), sum_of(memory[owner])) for owner in cards}


def _add_units(
    owners: Owners,
    gpus: Iterable[Gpu],
    page: DeviceValues,
    measured: "Measured | None",
    used: "defaultdict[Owner, list[_Used]]",
    asked: dict[Owner, _Asked],
) -> None:
    """Add the holders of units of GPUs: their ids tell their requests, and their processes tell their use."""
    units: defaultdict[Owner, dict[str, Assignment]] = defaultdict(dict)
    for held in owners.units:
        units[held.owner][held.resource] = held
    if not units:
        return
    of_card = {page.all_memory_of(device.key) for gpu in gpus for device in gpu.devices}
    for owner, of_owner in units.items():
        used[owner] += _used_of_units(owner, owners, measured)
        cores = of_owner[CORES].units / CORES_OF_GPU if CORES in of_owner else 0.0
        memory: float | None = None
        if MEMORY in of_owner:
            memory = float(of_owner[MEMORY].units * MEMORY_MIB)
        elif len(of_card) == 1 and cores >= 1:
            # a container that asks for whole cards gets all of their memory
            (all_of_card,) = of_card
            memory = None if all_of_card is None else cores * all_of_card
        before = asked.get(owner, (0.0, 0.0))
        asked[owner] = sum_of([before[0], cores]), sum_of([before[1], memory])


def _used_of_units(owner: Owner, owners: Owners, measured: "Measured | None") -> list[_Used]:
    """The use of the processes of a holder of units, by GPU. It has an unknown GPU ("") if there may be more."""
    if measured is None:
        return [_Used("", None, None)]
    uses = [
        _use(key, owner, _NO_PAGE, measured)
        for key, user in measured.uses
        if user == owner and all(holder.owner != owner for holder in owners.holders.get(key, ()))
    ]
    is_nameless = any(unowned.reason in ("unread", "unknown_container") for unowned in measured.unowned)
    if is_nameless or not measured.lists_all:
        return [*uses, _Used("", None, None)]
    return uses or [_Used("", 0.0, 0.0)]


def _cards(used: Sequence[_Used], asked: _Asked, index_of: Mapping[str, str]) -> Cards:
    """A container's cards: its use by card, where the card's index is known, and of all of them together."""
    by_index: defaultdict[str, list[_Used]] = defaultdict(list)
    for use in used:
        index = index_of.get(use.gpu)
        if index:
            by_index[index].append(use)
    together = _card("", used)
    indices = sorted(by_index, key=lambda index: (len(index), index))
    asked_cards, asked_memory_mib = asked
    return Cards(
        each=tuple(_card(index, by_index[index]) for index in indices),
        utilization=together.utilization,
        memory_mib=together.memory_mib,
        asked_cards=asked_cards,
        asked_memory_mib=asked_memory_mib,
    )


def _card(index: str, used: Sequence[_Used]) -> Card:
    return Card(index, sum_of([use.utilization for use in used]), sum_of([use.memory_mib for use in used]))
