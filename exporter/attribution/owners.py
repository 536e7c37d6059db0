"""From assignments (who was given which device id) to owners (who holds which device)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType

from exporter.attribution.device_ids import read_device_id
from exporter.model import Assignment, DeviceKey, Holder, Owner, Owners, Subject, UnmatchedId


class Unmatched(StrEnum):
    """Why an assigned device has no samples. The values of `unmatched_devices{reason}`."""

    UNKNOWN_ID = "unknown_id"
    MIG_UNRESOLVED = "mig_unresolved"
    NO_SAMPLE = "no_sample"


EXPLANATIONS = {
    Unmatched.UNKNOWN_ID: "the form of this device id is not known to the exporter",
    Unmatched.MIG_UNRESOLVED: (
        "samples name a MIG instance by its parent's UUID and GPU_I_ID, and nothing here says which instance this id"
        " is; let dcgm-exporter map it (its flag -k): what it says is kept"
    ),
    Unmatched.NO_SAMPLE: "no upstream page has a sample of this device: is its dcgm-exporter among the sources?",
}


def select(assignments: Iterable[Assignment], resources: Sequence[str]) -> frozenset[Assignment]:
    """The assignments of resources that match one of the globs (`--resources`)."""
    return frozenset(
        assignment for assignment in assignments if any(fnmatchcase(assignment.resource, glob) for glob in resources)
    )


def build_owners(assignments: Iterable[Assignment]) -> Owners:
    """Who holds which device. Several shares of one device in one container are one holder."""
    holders: dict[DeviceKey, dict[Owner, Holder]] = {}
    keys: dict[Assignment, DeviceKey] = {}
    unmatched = []
    for assignment in sorted(assignments):
        device = read_device_id(assignment.device_id)
        if device is None:
            unmatched.append(UnmatchedId(assignment=assignment, reason=Unmatched.UNKNOWN_ID))
            continue
        keys[assignment] = device.key
        holders.setdefault(device.key, {})[assignment.owner] = Holder(
            owner=assignment.owner, resource=assignment.resource, shared=device.shared
        )
    return Owners(
        holders=MappingProxyType({key: tuple(sorted(found.values())) for key, found in holders.items()}),
        keys=MappingProxyType(keys),
        unmatched=tuple(unmatched),
    )


@dataclass(frozen=True, slots=True)
class Match:
    """One assignment: the device it refers to, and why no sample speaks of that device (None where one does)."""

    assignment: Assignment
    key: DeviceKey | None
    unmatched: Unmatched | None


def match(owners: Owners, subjects: Iterable[Subject]) -> tuple[Match, ...]:
    """Every assignment against the devices seen in samples."""
    seen = {subject.key for subject in subjects}
    seen_uuids = {key.uuid for key in seen}
    matches = [Match(unknown.assignment, None, Unmatched(unknown.reason)) for unknown in owners.unmatched]
    for assignment, key in owners.keys.items():
        found = key in seen or (not key.instance and key.uuid in seen_uuids)
        why = Unmatched.MIG_UNRESOLVED if key.uuid.startswith("MIG-") else Unmatched.NO_SAMPLE
        matches.append(Match(assignment, key, None if found else why))
    return tuple(sorted(matches, key=lambda found: found.assignment))
