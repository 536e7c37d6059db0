"""/debug/mapping: every device id that the kubelet named, every device of the samples, and why one has no match."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from exporter.attribution.explain import WITHOUT_OWNER, Explainer, is_unfollowed_claim
from exporter.errors import Trouble
from exporter.model.devices import Assignment, DeviceKey, Holder, Inventory, Match
from exporter.model.pages import Subject
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot
from exporter.outputs.devices import explainer, seen_devices
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer

if TYPE_CHECKING:
    from exporter.model.measured import Measured

MOST_PROCESSES = 100  # that are named; all are counted on /metrics
_TEXTS_A_SLICE = 5_000  # names, values and signs: 2 ms


def debug(snapshot: Snapshot) -> dict[str, Any]:
    """The devices of a look, as JSON."""
    words = explainer(snapshot)
    known = _known_by(snapshot.inventory)
    return {
        "node": snapshot.node,
        "assignments_age_seconds": snapshot.assignments_age_seconds,
        "sources": {
            name: {"up": state.up, "reason": state.reason, "message": state.message, "remedy": state.remedy}
            for name, state in snapshot.health.items()
        },
        "assigned": [*_all_assigned(snapshot, words)],
        "seen": [
            {
                "uuid": subject.uuid,
                "gpu_i_id": subject.instance,
                "gpu_i_profile": subject.profile,
                "gpu": subject.index,
                "device": subject.device,
                "model": subject.model,
                "known_by": known.get(subject.key, []),
                "matched": bool(holders),
                "reason": "" if holders else words.unowned(subject),
                "owners": [
                    {
                        "namespace": holder.owner.namespace,
                        "pod": holder.owner.pod,
                        "container": holder.owner.container,
                        "shared": holder.shared,
                    }
                    for holder in holders
                ],
            }
            for subject, holders in ((subject, _holders(snapshot, subject)) for subject in seen_devices(snapshot))
        ],
        "inventory": _inventory(snapshot.inventory),
        "unmeasured": _why(snapshot.unmeasured) if snapshot.unmeasured else None,
        "processes_of_nobody": _of_nobody(snapshot.measured) if snapshot.measured else None,
    }


def _why(trouble: Trouble) -> dict[str, str]:
    return {"reason": trouble.reason, "message": trouble.message, "remedy": trouble.remedy}


def _all_assigned(snapshot: Snapshot, words: Explainer) -> Iterator[dict[str, Any]]:
    """What the kubelet handed out: of GPUs by an id, in units, and of resources that are left out."""
    for match in snapshot.owners.matches:
        yield {
            **_assigned(match.assignment),
            **_resolved(match),
            "reason": match.reason,
            "explanation": str(words.assigned(match) or ""),
        }
    for held in snapshot.owners.units:
        said = {"units": held.units, "reason": "units", "explanation": str(words.units)}
        yield {**_assigned(held), **_resolved(None), **said}
    for assignment in snapshot.facts.outside:
        yield {
            **_assigned(assignment),
            **_resolved(None),
            "reason": "dra_off" if is_unfollowed_claim(assignment, snapshot.facts) else "outside_resources",
            "explanation": str(words.outside(assignment)),
        }


def _of_nobody(measured: "Measured") -> dict[str, Any]:
    """The processes on GPUs that count for no owner of their GPU, each with the reason; of many the first."""
    return {
        "processes": [
            {
                "pid": each.process.pid,
                "uuid": each.process.device.uuid,
                "gpu_i_id": each.process.device.instance,
                "memory_bytes": each.process.memory_bytes,
                "sm_ratio": each.process.sm_ratio,
                "reason": each.reason,
                "explanation": WITHOUT_OWNER[each.reason],
                "container_id": each.place.container_id if each.place else "",
                "pod_uid": each.place.pod_uid if each.place else "",
                "engine": each.place.engine if each.place else "",
                "owner": f"{each.owner.namespace}/{each.owner.pod}/{each.owner.container}" if each.owner else "",
            }
            for each in measured.unowned[:MOST_PROCESSES]
        ],
        "more": max(0, len(measured.unowned) - MOST_PROCESSES),
    }


def _inventory(inventory: Inventory) -> dict[str, Any]:
    """The GPUs and MIG instances that are known by themselves, with the sources that know each, and every doubt."""
    return {
        "gpus": [
            {
                "uuid": gpu.uuid,
                "gpu": gpu.index,
                "device": gpu.device,
                "known_by": gpu.known_by,
                "mig": [
                    {
                        "uuid": mig.uuid,
                        "gpu_i_id": mig.instance_id,
                        "gpu_i_profile": mig.profile,
                        "known_by": mig.known_by,
                    }
                    for mig in gpu.mig
                ],
            }
            for gpu in inventory.gpus
        ],
        "doubts": [
            {
                "says": doubt.says,
                "remedy": doubt.remedy,
                "leaves_out": sorted(doubt.leaves_out),
                "contradiction": doubt.is_contradiction,
            }
            for doubt in inventory.doubts
        ],
    }


def _known_by(inventory: Inventory) -> dict[DeviceKey, list[str]]:
    """The names of the sources of the inventory that know a device, as samples name it."""
    known: dict[DeviceKey, list[str]] = {}
    for gpu in inventory.gpus:
        for uuid in (gpu.uuid, gpu.uuid.removeprefix("GPU-")):
            known[DeviceKey(uuid=uuid)] = list(gpu.known_by)
            for mig in gpu.mig:
                by = known.setdefault(DeviceKey(uuid=uuid, instance=mig.instance_id), [])
                by += (name for name in mig.known_by if name not in by)
        known |= {DeviceKey(uuid=mig.uuid): list(mig.known_by) for mig in gpu.mig}
    return known


def _assigned(assignment: Assignment) -> dict[str, Any]:
    owner, claim = assignment.owner, assignment.claim
    return {
        "device_id": assignment.device_id,
        "resource": assignment.resource,
        "namespace": owner.namespace,
        "pod": owner.pod,
        "container": owner.container,
        "claim": f"{claim.namespace}/{claim.name}" if claim else "",
    }


def _resolved(match: Match | None) -> dict[str, Any]:
    """What an id was read as, the device it came to, and how many samples of that device came in."""
    ref, key = (match.ref, match.key) if match else (None, None)
    return {
        "form": ref.form if ref else "",
        "shared": bool(ref and ref.shared),
        "uuid": key.uuid if key else "",
        "gpu_i_id": key.instance if key else "",
        "samples": match.samples if match else 0,
        "matched": bool(match and not match.reason),
    }


def _holders(snapshot: Snapshot, device: Subject) -> tuple[Holder, ...]:
    return snapshot.owners.of(device.key)


def _make(look: Look) -> Work[Answer]:
    said = debug(look.snapshot)
    yield
    texts = iter(json.JSONEncoder(indent=2).iterencode({**look.about, **said}))
    pieces = []
    while some := "".join(islice(texts, _TEXTS_A_SLICE)):
        pieces.append(some.encode())
        yield
    return answer(JSON_FORMAT, *pieces, b"\n")


OUTPUT = Output(
    path="/debug/mapping",
    says="every device, its owner, and why one has none",
    make=_make,
    needs=frozenset({Need.NODE, Need.DIAGNOSIS}),
)
