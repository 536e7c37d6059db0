"""The devices of a snapshot, each once and in stable order: what every list of devices is made of."""

from dataclasses import replace

from exporter.model.devices import DeviceKey, DeviceRef, Inventory
from exporter.model.pages import Subject, gpus_among, in_order
from exporter.model.snapshot import Snapshot


def seen_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples speak of, by GPU index, then by MIG instance."""
    return sorted(_seen(snapshot).values(), key=in_order)


def all_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the kubelet names."""
    return sorted(_seen_or_held(snapshot).values(), key=in_order)


def known_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the inventory names."""
    devices = _seen_or_held(snapshot)
    if snapshot.inventory.gpus:
        _add_inventory(devices, snapshot.inventory)
    return sorted(devices.values(), key=in_order)


def _seen(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    devices: dict[DeviceKey, Subject] = {}
    subjects = snapshot.joined.subjects if snapshot.joined else ()
    for subject in gpus_among(subjects, snapshot.owners, snapshot.inventory):
        # rows of NvLinks have fewer labels of their GPU than other rows
        devices[subject.key] = _merged(devices.get(subject.key), subject)
    return devices


def _seen_or_held(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    devices = _seen(snapshot)
    for match in snapshot.owners.matches:
        if match.key is not None and match.ref is not None and match.key not in devices:
            devices[match.key] = _from_id(match.key, match.ref)
    return devices


def _add_inventory(devices: dict[DeviceKey, Subject], inventory: Inventory) -> None:
    uuids = {subject.uuid for subject in devices.values()}
    # a GPU whose samples have no UUID goes by its name
    numbers = {subject.index for subject in devices.values() if subject.index and not subject.uuid}
    # the driver numbers no GPU, but the samples of a GPU's instances do
    number_of = {subject.uuid: subject.index for subject in devices.values() if subject.index}
    for gpu in inventory.gpus:
        if gpu.index in numbers:
            continue
        bare = gpu.uuid.removeprefix("GPU-")
        uuid = bare if bare in uuids else gpu.uuid
        index = gpu.index or number_of.get(uuid, "")
        # an instance whose samples carry its own UUID goes by that
        instances = (mig for mig in gpu.mig if mig.uuid not in uuids)
        for subject in (
            Subject(uuid=uuid, index=index),
            *(Subject(uuid=uuid, index=index, instance=mig.instance_id, profile=mig.profile) for mig in instances),
        ):
            devices[subject.key] = _merged(devices.get(subject.key), subject)


def _merged(device: Subject | None, other: Subject) -> Subject:
    """What both say of one device."""
    if device is None:
        return other
    return replace(
        device,
        index=device.index or other.index,
        device=device.device or other.device,
        model=device.model or other.model,
        profile=device.profile or other.profile,
        host=device.host or other.host,
    )


def _from_id(key: DeviceKey, ref: DeviceRef) -> Subject:
    named = key.uuid in (ref.device, ref.index)
    return Subject(
        uuid="" if named else key.uuid, instance=key.instance, index=ref.index, device=ref.device, profile=ref.profile
    )
