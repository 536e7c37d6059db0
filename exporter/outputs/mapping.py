"""/debug/mapping: every device id of the kubelet, every device of samples, and the reason why one has no match."""

import json
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

from exporter.errors import Trouble
from exporter.lenient import Object
from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu, Match, bare
from exporter.model.pages import Subject
from exporter.model.slices import Work
from exporter.model.snapshot import Health, Snapshot, seen_devices
from exporter.outputs.complaints import in_parts
from exporter.outputs.device_rows import explainer, granted_fields
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer
from exporter.ownership.explain import UNITS_NAME_NO_GPU, WITHOUT_OWNER, Explainer, of_look

if TYPE_CHECKING:
    from exporter.model.measured import Measured, Unowned

MOST_PROCESSES = 100  # the most processes that are named; /metrics counts all
_TEXTS_A_SLICE = 5_000  # names, values and signs: 2 ms


def debug(snapshot: Snapshot) -> Object:
    """The devices of a look, as JSON."""
    words = explainer(snapshot)
    owners = snapshot.owners
    sources_of = _sources(snapshot.inventory)
    return {
        "node": snapshot.node,
        "assignments_age_seconds": snapshot.assignments_age_seconds,
        "sources": {name: _source(snapshot, name, state) for name, state in snapshot.health.items()},
        # all that the kubelet handed out: GPUs by an id, units of GPUs, and resources that are left out
        "assigned": [
            *(_assigned(match.assignment, match.reason, words.assigned(match), match) for match in owners.matches),
            *(_assigned(held, "units", UNITS_NAME_NO_GPU, units=held.units) for held in owners.units),
            *(_assigned(look.assignment, *of_look(look), look) for look in owners.looks),
            *(_assigned(assignment, *words.outside(assignment)) for assignment in snapshot.context.outside),
        ],
        "seen": [_seen(subject, words, sources_of.get(subject.key, [])) for subject in seen_devices(snapshot)],
        "inventory": _inventory(snapshot.inventory),
        "unmeasured": in_parts(snapshot.unmeasured) if snapshot.unmeasured else None,
        "processes_of_nobody": _of_nobody(snapshot.measured) if snapshot.measured else None,
    }


def _source(snapshot: Snapshot, name: str, state: Health) -> Object:
    """Whether a source answers, and what DCGM its page can be of."""
    generation = (snapshot.page_generations or {}).get(name)
    shown = {"generation": generation.as_json()} if generation else {}
    return {"up": state.up, **in_parts(state.trouble), **shown}


def _seen(subject: Subject, words: Explainer, sources: list[str]) -> Object:
    """A device of samples, with its owners, or the reason why it has none."""
    holders = words.owners.of(subject.key)
    return {
        "uuid": subject.uuid,
        "gpu_i_id": subject.instance,
        "gpu_i_profile": subject.profile,
        "gpu": subject.index,
        "device": subject.device,
        "model": subject.model,
        "known_by": sources,
        "matched": bool(holders),
        "reason": "" if holders else words.unowned(subject),
        "owners": [{**asdict(holder.owner), "shared": holder.shared} for holder in holders],
    }


def _assigned(
    assignment: Assignment, reason: str, why: Trouble | None, match: Match | None = None, **more: object
) -> Object:
    """An id, the meaning that was read in it, its device, and the number of samples of that device."""
    claim = assignment.claim
    word = assignment.word
    ref = match and match.ref
    key = match and match.key
    return {
        "device_id": assignment.device_id,
        "resource": assignment.resource,
        **asdict(assignment.owner),
        "claim": f"{claim.namespace}/{claim.name}" if claim else "",
        "form": ref.form if ref else "",
        "allocator": word.grant.allocator if word else "",
        "said_by": word.source if word else "",
        "shared": bool(ref and ref.shared),
        "uuid": key.uuid if key else "",
        "gpu_i_id": key.instance if key else "",
        "samples": match.samples if match else 0,
        "matched": bool(match and not match.reason),
        **(granted_fields(assignment.word.grant) if assignment.word else {}),
        **more,
        "reason": reason,
        "explanation": f"{why.message}: {why.remedy}" if why else "",
    }


def _of_nobody(measured: "Measured") -> Object:
    """The processes on GPUs that count for no owner of their GPU, each with the reason; MOST_PROCESSES at most."""
    return {
        "processes": [_process(unowned) for unowned in measured.unowned[:MOST_PROCESSES]],
        "more": max(0, len(measured.unowned) - MOST_PROCESSES),
    }


def _process(unowned: "Unowned") -> Object:
    """A process that counts for no owner."""
    process = unowned.process
    place = unowned.place
    return {
        "pid": process.pid,
        "uuid": process.device.uuid,
        "gpu_i_id": process.device.instance,
        "memory_bytes": process.memory_bytes,
        "sm_ratio": process.sm_ratio,
        "reason": unowned.reason,
        "explanation": WITHOUT_OWNER[unowned.reason],
        "container_id": place.container_id if place else "",
        "pod_uid": place.pod_uid if place else "",
        "engine": place.engine if place else "",
        "owner": unowned.owner.name if unowned.owner else "",
    }


def _inventory(inventory: Inventory) -> Object:
    """The GPUs and MIG instances that are known by themselves, with the sources that know each, and every doubt."""
    return {
        "gpus": [
            {"uuid": gpu.uuid, "gpu": gpu.index, "device": gpu.device, "known_by": gpu.sources, "mig": _instances(gpu)}
            for gpu in inventory.gpus
        ],
        "doubts": [
            {
                "says": doubt.trouble.message,
                "remedy": doubt.trouble.remedy,
                "leaves_out": sorted(doubt.leaves_out),
                "contradiction": doubt.is_contradiction,
            }
            for doubt in inventory.doubts
        ],
    }


def _instances(gpu: InventoryGpu) -> list[Object]:
    return [
        {"uuid": mig.uuid, "gpu_i_id": mig.instance_id, "gpu_i_profile": mig.profile, "known_by": mig.sources}
        for mig in gpu.mig
    ]


def _sources(inventory: Inventory) -> dict[DeviceKey, list[str]]:
    """The names of the sources of the inventory that know a device, as samples name it."""
    names_of: dict[DeviceKey, list[str]] = {}
    for gpu in inventory.gpus:
        for uuid in (gpu.uuid, bare(gpu.uuid)):
            names_of[DeviceKey(uuid=uuid)] = list(gpu.sources)
            for mig in gpu.mig:
                by = names_of.setdefault(DeviceKey(uuid=uuid, instance=mig.instance_id), [])
                by += (name for name in mig.sources if name not in by)
        names_of |= {DeviceKey(uuid=mig.uuid): list(mig.sources) for mig in gpu.mig}
    return names_of


def _make(look: Look) -> Work[Answer]:
    content = debug(look.snapshot)
    yield
    texts = iter(json.JSONEncoder(indent=2).iterencode({**look.about, **content}))
    pieces: list[bytes] = []
    while True:
        piece = "".join(islice(texts, _TEXTS_A_SLICE))
        if not piece:
            return answer(JSON_FORMAT, *pieces, b"\n")
        pieces.append(piece.encode())
        yield


OUTPUT = Output(
    path="/debug/mapping",
    says="every device, its owner, and why one has none",
    make=_make,
    needs=frozenset({Need.NODE, Need.DIAGNOSIS, Need.VERDICTS, Need.IDLE_SINCE}),
)
