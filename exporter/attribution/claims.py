"""Devices that came through Dynamic Resource Allocation: which GPU a claim's device is.

The kubelet names driver, pool and device. Which GPU that is, the driver's ResourceSlice says by the device's
attributes, or the name of a CDI device, where it holds a UUID.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from exporter.model.devices import Claim, DeviceRef, ResourceSlice, SliceDevice, SliceDeviceName

# With its prefix only: a CDI name such as k8s.gpu.nvidia.com/claim=<uuid>-gpu-0 holds the claim's own UUID.
_UUID_IN_CDI_NAME = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def read_claim(claim: Claim, slices: Mapping[SliceDeviceName, SliceDevice]) -> DeviceRef | None:
    """What a claim's device refers to; `slices` is by driver, pool and device. None where neither source says it."""
    form = "DRA driver/pool/device"
    shared = bool(claim.share)
    device = slices.get((claim.driver, claim.pool, claim.device))
    if device is not None and device.uuid:
        if device.kind == "mig" or device.uuid.startswith("MIG-"):
            return DeviceRef(
                form=form, mig=device.uuid, parent=device.parent_uuid, profile=device.profile, shared=shared
            )
        return DeviceRef(form=form, uuid=device.uuid, shared=shared)
    named = {(found[1], found[0]) for name in claim.cdi_names if (found := _UUID_IN_CDI_NAME.search(name))}
    # the names of a MIG instance may name its GPU as well
    of_kind = {uuid for kind, uuid in named if kind == "MIG"} or {uuid for _, uuid in named}
    if len(of_kind) != 1:
        return None  # none, or several of which each could be meant
    (uuid,) = of_kind
    form = "CDI name with a UUID"
    if uuid.startswith("MIG-"):
        return DeviceRef(form=form, mig=uuid, shared=shared)
    return DeviceRef(form=form, uuid=uuid, shared=shared)


def complete_pools(slices: Iterable[ResourceSlice]) -> Mapping[tuple[str, str], Sequence[ResourceSlice]]:
    """The slices that count, by driver and pool; a pool that is not told of whole is not there.

    A driver that renews a pool publishes slices of the next generation while the old ones are still there. Only the
    highest generation of which every slice is there (pool.resourceSliceCount) counts.
    """
    by_generation: dict[tuple[str, str], dict[int, list[ResourceSlice]]] = {}
    for found in slices:
        by_generation.setdefault((found.driver, found.pool), {}).setdefault(found.generation, []).append(found)
    pools: dict[tuple[str, str], Sequence[ResourceSlice]] = {}
    for pool, generations in by_generation.items():
        complete = [number for number, of in generations.items() if len(of) >= of[0].slice_count]
        if complete:
            pools[pool] = generations[max(complete)]
    return pools


def devices_of(pools: Mapping[tuple[str, str], Sequence[ResourceSlice]]) -> Mapping[SliceDeviceName, SliceDevice]:
    """The devices of complete pools, by driver, pool and device."""
    return {
        (driver, pool, name): device
        for (driver, pool), slices in pools.items()
        for found in slices
        for name, device in found.devices.items()
    }
