"""The part of a device that an allocator's grant gives a container, and how a device's value is divided by grants.

Whoever needs a holder's part asks here.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import lcm

from exporter.model.devices import DeviceKey, Holder
from exporter.model.grants import Grant

Part = tuple[int, int]  # numerator and denominator, which need not be in lowest terms
_ALL: Part = (1, 1)
_PERCENT = 100
# below it, a number is no amount that anybody grants, and its denominator would be long
_LEAST = 1e-9
_MOST = 1e12
# A page without FB_TOTAL and FB_RESERVED lacks the memory that the driver keeps for itself (1 to 3 % of a GPU), and
# each of its numbers is rounded down. So a grant that is larger by no more than this is the whole device.
_MOST_MORE_PERCENT = 5


def part_of(grant: Grant | None, memory_mib: float | None) -> Part | None:
    """The part of a device that a grant gives; None if the grant does not say it. `memory_mib` is the device's memory.

    The allocator's own fraction counts before all else. A grant of all cores is the whole device, since HAMi leaves
    nobody else a part of it (`Coresreq == 100` in its scheduler). Then the memory decides, and last the cores. A part
    may be above 1: HAMi and Volcano can offer more memory than there is (deviceMemoryScaling). It is exact: its
    quotient is the float of the grant.
    """
    if grant is None:
        return None
    fraction = _exact(grant.fraction)
    if fraction is not None:
        return fraction
    cores = grant.cores_percent or 0.0
    if cores >= _PERCENT:
        return _ALL
    memory = _exact(grant.memory_mib)
    of_device = _exact(memory_mib)
    if memory is not None and of_device is not None:
        part = memory[0] * of_device[1], memory[1] * of_device[0]
        is_all = part[1] < part[0] and _PERCENT * (part[0] - part[1]) <= _MOST_MORE_PERCENT * part[1]
        return _ALL if is_all else part
    return _exact(cores / _PERCENT)


def weights_of(grants: Sequence[Grant | None]) -> Sequence[int] | None:
    """Whole numbers in proportion to what the holders of one device were granted of it.

    The holders use the device together, so a part that nobody was granted is not left over. None unless all grants
    say the same measure, since only the device's memory would compare a fraction with MiB.
    """
    if None in grants:
        return None
    for measure in ("fraction", "memory_mib", "cores_percent"):
        amounts = [_exact(getattr(grant, measure)) for grant in grants]
        unit = lcm(*(amount[1] for amount in amounts if amount))
        weights = [amount[0] * unit // amount[1] for amount in amounts if amount]
        if weights and len(weights) == len(grants):
            return weights
    return None


def devices_with_memory(holders: Mapping[DeviceKey, Iterable[Holder]]) -> frozenset[DeviceKey]:
    """The devices of which somebody was granted an amount of memory, so that the device's memory must be read."""
    return frozenset(
        key
        for key, of_key in holders.items()
        if any(holder.grant is not None and holder.grant.memory_mib for holder in of_key)
    )


def _exact(amount: float | None) -> Part | None:
    """An amount as a fraction; None if it is not given, or is none above 0.

    HAMi writes 0 for cores that nobody limited.
    """
    return None if amount is None or not _LEAST <= amount <= _MOST else float(amount).as_integer_ratio()
