"""What kind of a thing a device is, and the order in which all outputs list devices."""

from collections.abc import Container, Iterable

from exporter.model.devices import Inventory, Owners
from exporter.model.pages import Subject

_MAX_INDEX_DIGITS = 9


def gpus_among(subjects: Iterable[Subject], owners: Owners, inventory: Inventory) -> list[Subject]:
    """The GPUs and MIG instances among what samples are about: labels show it, or the kubelet or the inventory does.

    Disks and machines have UUIDs, names and numbers too. A label that only GPUs have shows a GPU also without a UUID,
    unless it is one whose UUID other samples carry, or the kubelet has names that the samples have not: then these may
    be the same GPUs.
    """
    subjects, named = tuple(subjects), owners.named
    of_inventory = {gpu.uuid for gpu in inventory.gpus} | {gpu.uuid.removeprefix("GPU-") for gpu in inventory.gpus}
    found = [each for each in subjects if each.is_device or each.key in named or each.uuid in of_inventory]
    labelled = [each for each in subjects if each.has_gpu_label and not each.uuid and each.key not in named]
    if labelled and named <= {each.key for each in subjects}:
        with_uuid = {name for each in found if each.uuid for name in (each.index, each.device)}
        found += (each for each in labelled if with_uuid.isdisjoint({each.index, each.device} - {""}))
    return found


def cut_gpus(devices: Iterable[Subject]) -> frozenset[str]:
    """The GPUs that are cut into MIG instances, as their keys name them."""
    return frozenset(device.key.uuid for device in devices if device.instance)


def entity_of(device: Subject, cut: Container[str]) -> str:
    """`mig` for a MIG instance, `mig-parent` for a GPU that is cut into some (`cut_gpus`), `gpu` for any other."""
    if device.instance or device.key.uuid.startswith("MIG-"):
        return "mig"
    return "mig-parent" if device.key.uuid in cut else "gpu"


def in_order(subject: Subject) -> tuple[object, ...]:
    """The key that sorts devices: by GPU index, then by MIG instance."""
    # a GPU goes before its instances, one whose index nobody said after all others
    return (not subject.index, _number(subject.index), bool(subject.instance), _number(subject.instance), subject.key)


def _number(text: str) -> tuple[int, str]:
    """Numbers by size; what is no number after them."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_INDEX_DIGITS
    return (int(text), "") if is_number else (10**_MAX_INDEX_DIGITS, text)
