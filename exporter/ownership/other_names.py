"""Devices that the kubelet's ids and the samples call by names that have nothing in common. Pure.

AMD's device plugin names a GPU by its address on PCI, and the samples of AMD's exporter carry a number and a UUID. So
an id resolves to no sample, and its device is one of those that samples have: which one, the ids do not say. But it is
not one device more.

Whose a device is may be clear all the same, though not which id it has:

1. the page names owners by itself, and of one container it has as many devices as the kubelet gave it ids;
2. one container holds all ids of such devices, and the page has exactly as many.

Who has several of them then has them in the order of their names, which nothing depends on.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner

# the owners that a page names by itself, by device; a device of a page that names none has an empty set
OwnersOfPage = Mapping[DeviceKey, Collection[Owner]]
Renamed = Mapping[DeviceKey, DeviceKey]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamesOfKubelet:
    """Devices as the kubelet names them: those that are held, each with its owners, and those on offer.

    `are_all`: the kubelet holds no other device of which nobody knows which one it is.
    """

    held: Mapping[DeviceKey, Collection[Owner]]
    offered: Collection[DeviceKey]
    are_all: bool = True

    @property
    def every(self) -> frozenset[DeviceKey]:
        """All of them."""
        return frozenset((*self.held, *self.offered))


def joined(names: NamesOfKubelet, of_page: OwnersOfPage) -> Renamed:
    """Which of the page's devices these are, by the kubelet's names, as far as their owners show it."""
    renamed: dict[DeviceKey, DeviceKey] = {}
    by_owner = _by_owner(names.held)
    for owner, keys in by_owner.items():
        its_devices = [device for device, owners in of_page.items() if _is_only(owner, owners, by_owner)]
        if len(its_devices) == len(keys):
            renamed.update(zip(keys, sorted(its_devices), strict=True))
    owners = {owner for keys in names.held.values() for owner in keys}
    is_nobody_named = not any(of_page.values())
    if is_nobody_named and names.are_all and len(owners) == 1 and len(names.every) == len(names.held) == len(of_page):
        renamed.update(zip(sorted(names.held), sorted(of_page), strict=True))
    return renamed


def _by_owner(held: Mapping[DeviceKey, Collection[Owner]]) -> Mapping[Owner, Sequence[DeviceKey]]:
    """The devices of each owner, in order; none that several hold."""
    by_owner: defaultdict[Owner, list[DeviceKey]] = defaultdict(list)
    for key in sorted(held):
        owners = held[key]
        if len(owners) == 1:
            by_owner[next(iter(owners))].append(key)
    return by_owner


def _is_only(owner: Owner, of_page: Collection[Owner], others: Iterable[Owner]) -> bool:
    """Whether the page names this owner alone. Some exporters name the pod, and no container."""
    return len(of_page) == 1 and all(named in (owner, *_pod_alone(owner, others)) for named in of_page)


def _pod_alone(owner: Owner, others: Iterable[Owner]) -> Iterator[Owner]:
    of_pod = [other for other in others if (other.namespace, other.pod) == (owner.namespace, owner.pod)]
    if of_pod == [owner]:
        yield Owner(namespace=owner.namespace, pod=owner.pod, container="")
