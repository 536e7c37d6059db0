"""The devices of a snapshot, each once and in stable order: what every output that lists devices shares."""

from dataclasses import replace

from exporter.attribution.explain import Explainer
from exporter.model.devices import DeviceKey, DeviceRef, Inventory
from exporter.model.entities import gpus_among, in_order
from exporter.model.pages import Subject
from exporter.model.snapshot import Snapshot


def seen_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples speak of, by GPU index, then by MIG instance."""
    return sorted(_seen(snapshot).values(), key=in_order)


def all_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the kubelet names, with what it alone knows."""
    return sorted(_seen_or_held(snapshot).values(), key=in_order)


def known_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the inventory names."""
    found = _seen_or_held(snapshot)
    if snapshot.inventory.gpus:
        _add_inventory(found, snapshot.inventory)
    return sorted(found.values(), key=in_order)


def _seen(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    found: dict[DeviceKey, Subject] = {}
    subjects = snapshot.joined.subjects if snapshot.joined else ()
    for subject in gpus_among(subjects, snapshot.owners, snapshot.inventory):
        # NvLink rows know less of their GPU than others do
        found[subject.key] = _merged(found.get(subject.key), subject)
    return found


def _seen_or_held(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    found = _seen(snapshot)
    for match in snapshot.owners.matches:
        if match.key is not None and match.ref is not None and match.key not in found:
            found[match.key] = _from_id(match.key, match.ref)
    return found


def _add_inventory(found: dict[DeviceKey, Subject], inventory: Inventory) -> None:
    uuids = {subject.uuid for subject in found.values()}
    # a GPU whose samples have no UUID goes by its name
    numbers = {subject.index for subject in found.values() if subject.index and not subject.uuid}
    # the driver numbers no GPU, but the samples of a GPU's instances do
    number_of = {subject.uuid: subject.index for subject in found.values() if subject.index}
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
            found[subject.key] = _merged(found.get(subject.key), subject)


def _merged(known: Subject | None, other: Subject) -> Subject:
    """What both say of one device."""
    if known is None:
        return other
    return replace(
        known,
        index=known.index or other.index,
        device=known.device or other.device,
        model=known.model or other.model,
        profile=known.profile or other.profile,
        host=known.host or other.host,
    )


def _from_id(key: DeviceKey, ref: DeviceRef) -> Subject:
    named = key.uuid in (ref.device, ref.index)
    return Subject(
        uuid="" if named else key.uuid,
        instance=key.instance,
        index=ref.index,
        device=ref.device,
        profile=ref.profile,
    )


def explainer(snapshot: Snapshot) -> Explainer:
    """What finds the words for devices without samples, and without owners."""
    return Explainer(
        snapshot.owners,
        snapshot.joined.subjects if snapshot.joined else (),
        snapshot.facts,
        snapshot.inventory,
        kubelet_answered=snapshot.assignments_age_seconds is not None,
    )
