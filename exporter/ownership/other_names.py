"""Devices whose names in the kubelet's ids and in samples have nothing in common. Pure.

AMD's device plugin names a GPU by its PCI address, and the samples of AMD's exporter have a number and a UUID. So an id
resolves to no sample, although its device is one of those in the samples. The ids do not say which one. It must not be
counted as a further device.

The owner of a device may be clear all the same, although its id is not:

1. the page itself names owners, and has as many devices of one container as the kubelet gave that container ids;
2. one container holds all ids of such devices, and the page has exactly as many devices.

If a container has several of them, ids and devices are paired in the order of their names; nothing depends on it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

# The owners that a page itself names, by device; an empty set if it names none.
OwnersOfPage = Mapping[DeviceKey, Collection[Owner]]
Renamed = Mapping[DeviceKey, DeviceKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesOfKubelet:
    """Devices by the kubelet's names: the held devices, each with its owners, and the devices on offer.

    `are_all`: every other device that the kubelet handed out is known.
    """

    held: Mapping[DeviceKey, Collection[Owner]]
    offered: Collection[DeviceKey]
    are_all: bool = True

    @property
    def every(self) -> frozenset[DeviceKey]:
        """The held devices and those on offer."""
        return frozenset((*self.held, *self.offered))


def joined(names: NamesOfKubelet, of_page: OwnersOfPage) -> Renamed:
    """The page's devices by the kubelet's names, as far as their owners show it."""
    renamed: dict[DeviceKey, DeviceKey] = {}
    by_owner = _by_owner(names.held)
    for owner, keys in by_owner.items():
        its_devices = [device for device, owners in of_page.items() if _is_only(owner, owners, by_owner)]
        if len(its_devices) == len(keys):
            renamed.update(zip(keys, sorted(its_devices), strict=True))
    owners = {owner for keys in names.held.values() for owner in keys}
    is_nobody_named = not any(of_page.values())
    are_all_held = len(names.every) == len(names.held) == len(of_page)
    if is_nobody_named and names.are_all and len(owners) == 1 and are_all_held:
        renamed.update(zip(sorted(names.held), sorted(of_page), strict=True))
    return renamed


def _by_owner(held: Mapping[DeviceKey, Collection[Owner]]) -> Mapping[Owner, Sequence[DeviceKey]]:
    """The devices of each owner, in order, without devices that several owners hold."""
    by_owner: defaultdict[Owner, list[DeviceKey]] = defaultdict(list)
    for key in sorted(held):
        owners = held[key]
        if len(owners) == 1:
            by_owner[next(iter(owners))].append(key)
    return by_owner


def _is_only(owner: Owner, of_page: Collection[Owner], others: Iterable[Owner]) -> bool:
    """Whether the page names only this owner. Some exporters name the pod without a container."""
    names = {owner}
    if [other for other in others if other.pod_key == owner.pod_key] == [owner]:
        names.add(replace(owner, container=""))
    return len(of_page) == 1 and names.issuperset(of_page)
