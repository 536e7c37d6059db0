"""Keeping what a ResourceSlice said of a device while no slice says anything of it.

A starting kubelet deletes all ResourceSlices of its node, and a running one does so 30 s after a driver's socket went
away; drivers publish them again 30 s later, under other names and uids (measured on 1.36). The devices stay with their
containers all the time. So what was known of a device outlives its slice, until one of these:

- the device's pool is told of whole again: from then on the pool's word holds, also where it lacks the device;
- a slice of the pool, even of one that is not whole yet, describes the device in another way;
- no assignment in force names the device.

Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from types import MappingProxyType

from exporter.attribution.claims import complete_pools, devices_of
from exporter.model.devices import Assignment, ResourceSlice, SliceDevice, SliceDeviceName

Devices = Mapping[SliceDeviceName, SliceDevice]

# A node of 16 GPUs publishes some 320 devices, MIG profiles counted.
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevices:
    """The devices of slices: `devices` are all that are known, `kept` those of them that no slice names now."""

    devices: Devices = field(default_factory=lambda: MappingProxyType({}))
    kept: Devices = field(default_factory=lambda: MappingProxyType({}))


def told(before: KnownDevices, slices: Iterable[ResourceSlice]) -> KnownDevices:
    """The slices are these now. At most MOST_KEPT devices that they do not name are kept, those kept longest first."""
    slices = tuple(slices)
    pools = complete_pools(slices)
    described: dict[SliceDeviceName, list[SliceDevice]] = {}
    for found in slices:
        for name, device in found.devices.items():
            described.setdefault((found.driver, found.pool, name), []).append(device)
    lost = (
        (name, device)
        for name, device in {**before.kept, **before.devices}.items()
        if name[:2] not in pools and device in described.get(name, (device,))
    )
    kept = dict(islice(lost, MOST_KEPT))
    return KnownDevices(devices=MappingProxyType({**devices_of(pools), **kept}), kept=MappingProxyType(kept))


def named(before: KnownDevices, assignments: Iterable[Assignment]) -> KnownDevices:
    """Of what no slice names any more, only what an assignment in force names. The same object if that is all."""
    if not before.kept:
        return before
    claims = (assignment.claim for assignment in assignments)
    wanted = {(claim.driver, claim.pool, claim.device) for claim in claims if claim is not None}
    if before.kept.keys() <= wanted:
        return before
    kept = {name: device for name, device in before.kept.items() if name in wanted}
    devices = {name: device for name, device in before.devices.items() if name in wanted or name not in before.kept}
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))
