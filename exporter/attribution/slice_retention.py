"""Keeping the attributes of a device while no ResourceSlice describes it.

A starting kubelet deletes all ResourceSlices of its node, and a running one deletes those of a driver 30 s after the
driver's socket went away. Drivers publish them again 30 s later, under other names and uids (measured on 1.36). The
containers keep their devices all the time. So the attributes of a device outlive its slice, until one of these:

- the device's pool is complete again: from then on the pool holds, even if it lacks the device;
- a slice of the pool describes the device in another way, even if the pool is not complete yet;
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
    """The known devices of slices. `kept` are those of `devices` that no slice describes now."""

    devices: Devices = field(default_factory=lambda: MappingProxyType({}))
    kept: Devices = field(default_factory=lambda: MappingProxyType({}))


def told(before: KnownDevices, slices: Iterable[ResourceSlice]) -> KnownDevices:
    """What is known once these are all the slices.

    At most MOST_KEPT devices without a slice are kept; those that have been kept for longest come first.
    """
    slices = tuple(slices)
    pools = complete_pools(slices)
    described: dict[SliceDeviceName, list[SliceDevice]] = {}
    for resource_slice in slices:
        for name, device in resource_slice.devices.items():
            described.setdefault((resource_slice.driver, resource_slice.pool, name), []).append(device)
    lost = (
        (name, device)
        for name, device in {**before.kept, **before.devices}.items()
        if name[:2] not in pools and device in described.get(name, (device,))
    )
    kept = dict(islice(lost, MOST_KEPT))
    return KnownDevices(devices=MappingProxyType({**devices_of(pools), **kept}), kept=MappingProxyType(kept))


def named(before: KnownDevices, assignments: Iterable[Assignment]) -> KnownDevices:
    """`before` without the kept devices that no assignment in force names; `before` itself if there are none."""
    if not before.kept:
        return before
    claims = (assignment.claim for assignment in assignments)
    wanted = {(claim.driver, claim.pool, claim.device) for claim in claims if claim is not None}
    if before.kept.keys() <= wanted:
        return before
    kept = {name: device for name, device in before.kept.items() if name in wanted}
    devices = {name: device for name, device in before.devices.items() if name in wanted or name not in before.kept}
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))
