"""The devices of a snapshot, each once and in stable order: what every output that lists devices shares."""

from dataclasses import replace

from exporter.attribution.explain import Explainer
from exporter.model import DeviceKey, DeviceRef, Snapshot, Subject

_MAX_INDEX_DIGITS = 9


def seen_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples speak of, by GPU index, then by MIG instance."""
    found: dict[DeviceKey, Subject] = {}
    for subject in snapshot.joined.subjects if snapshot.joined else ():
        # what has no UUID is a device only if a container holds it: other things have names and numbers too
        if subject.uuid or subject.key in snapshot.owners.holders:
            known = found.setdefault(subject.key, subject)
            # NvLink rows know less of their GPU than others do
            found[subject.key] = replace(
                known,
                index=known.index or subject.index,
                device=known.device or subject.device,
                model=known.model or subject.model,
                profile=known.profile or subject.profile,
                host=known.host or subject.host,
            )
    return sorted(found.values(), key=_order)


def all_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the kubelet names, with what it alone knows."""
    seen = seen_devices(snapshot)
    known = {subject.key for subject in seen}
    unseen = {
        match.key: _from_id(match.key, match.ref)
        for match in snapshot.owners.matches
        if match.key is not None and match.ref is not None and match.key not in known
    }
    return sorted((*seen, *unseen.values()), key=_order)


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
        kubelet_answered=snapshot.assignments_age_seconds is not None,
    )


def _order(subject: Subject) -> tuple[object, ...]:
    # a GPU goes before its instances, one whose index nobody said after all others
    return (not subject.index, _number(subject.index), bool(subject.instance), _number(subject.instance), subject.key)


def _number(text: str) -> tuple[int, str]:
    """Numbers by size; what is no number after them."""
    is_number = text.isascii() and text.isdigit() and len(text) <= _MAX_INDEX_DIGITS
    return (int(text), "") if is_number else (10**_MAX_INDEX_DIGITS, text)
