"""Devices that came through Dynamic Resource Allocation: which GPU a claim's device is.

The kubelet names driver, pool and device. Two sources say which GPU that is: the attributes of the device in the
driver's ResourceSlice, or the name of a CDI device that holds a UUID.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from exporter.model.devices import Claim, DeviceRef, ResourceSlice, SliceDevice, SliceDeviceName

# A UUID counts only with its prefix: k8s.gpu.nvidia.com/claim=<uuid>-gpu-0 holds the UUID of the claim, not of a GPU.
_UUID_IN_CDI_NAME = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def read_claim(claim: Claim, slices: Mapping[SliceDeviceName, SliceDevice]) -> DeviceRef | None:
    """The GPU or MIG instance that a claim's device refers to.

    None where neither the ResourceSlice nor a CDI name says it, or where the CDI names hold several UUIDs.
    """
    form = "DRA driver/pool/device"
    shared = bool(claim.share)
    device = slices.get((claim.driver, claim.pool, claim.device))
    if device is not None and device.uuid:
        if device.kind == "mig" or device.uuid.startswith("MIG-"):
            return DeviceRef(
                form=form, mig=device.uuid, parent=device.parent_uuid, profile=device.profile, shared=shared
            )
        return DeviceRef(form=form, uuid=device.uuid, shared=shared)
    named = {(match[1], match[0]) for name in claim.cdi_names if (match := _UUID_IN_CDI_NAME.search(name))}
    # the CDI names of a MIG instance may name its GPU as well
    of_kind = {uuid for kind, uuid in named if kind == "MIG"} or {uuid for _, uuid in named}
    if len(of_kind) != 1:
        return None
    (uuid,) = of_kind
    form = "CDI name with a UUID"
    if uuid.startswith("MIG-"):
        return DeviceRef(form=form, mig=uuid, shared=shared)
    return DeviceRef(form=form, uuid=uuid, shared=shared)


def complete_pools(slices: Iterable[ResourceSlice]) -> Mapping[tuple[str, str], Sequence[ResourceSlice]]:
    """The slices of each complete pool, by driver and pool; an incomplete pool is left out.

    A driver that renews a pool publishes slices of the next generation while the old ones are still there. So a pool
    is its highest generation that has all its slices (pool.resourceSliceCount).
    """
    by_generation: dict[tuple[str, str], dict[int, list[ResourceSlice]]] = {}
    for resource_slice in slices:
        by_generation.setdefault((resource_slice.driver, resource_slice.pool), {}).setdefault(
            resource_slice.generation, []
        ).append(resource_slice)
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
        for resource_slice in slices
        for name, device in resource_slice.devices.items()
    }
