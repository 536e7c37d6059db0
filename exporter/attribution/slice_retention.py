"""Keeping the attributes of a device while no ResourceSlice describes it.

A starting kubelet deletes all ResourceSlices of its node, and a running one deletes those of a driver 30 s after the
driver's socket went away. Drivers publish them again 30 s later, under other names and uids (measured on 1.36). The
containers keep their devices all the time. So the attributes of a device outlive its slice, until one of these:

- the device's pool is complete again: from then on the pool holds, even if it lacks the device;
- a slice of the pool describes the device in another way, even if the pool is not complete yet;
- no assignment in force names the device, and two minutes have passed: a pod may get its claim meanwhile.

Pure: every moment comes in as `now`, in seconds of `time.monotonic`.
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
UNNAMED_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDevices:
    """The known devices of slices. `kept` are those of `devices` that no slice describes now, and since when."""

    devices: Devices = field(default_factory=lambda: MappingProxyType({}))
    kept: Mapping[SliceDeviceName, float] = field(default_factory=lambda: MappingProxyType({}))


def told(before: KnownDevices, slices: Iterable[ResourceSlice], *, now: float) -> KnownDevices:
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
        name
        for name in {**before.kept, **before.devices}
        if name[:2] not in pools and before.devices[name] in described.get(name, (before.devices[name],))
    )
    kept = {name: before.kept.get(name, now) for name in islice(lost, MOST_KEPT)}
    devices = {**devices_of(pools), **{name: before.devices[name] for name in kept}}
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))


def named(before: KnownDevices, assignments: Iterable[Assignment], *, now: float) -> KnownDevices:
    """`before` without what was kept for long enough and no assignment in force names; `before` itself if all is."""
    old = {name for name, since in before.kept.items() if now - since >= UNNAMED_SECONDS}
    if not old:
        return before
    claims = (assignment.claim for assignment in assignments)
    old -= {(claim.driver, claim.pool, claim.device) for claim in claims if claim is not None}
    if not old:
        return before
    kept = {name: since for name, since in before.kept.items() if name not in old}
    devices = {name: device for name, device in before.devices.items() if name not in old}
    return KnownDevices(devices=MappingProxyType(devices), kept=MappingProxyType(kept))
