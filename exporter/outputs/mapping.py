"""Which pod holds which GPU: the mapping families on /metrics, /metrics/nodes, and /debug/mapping."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from exporter.attribution.explain import is_unfollowed_claim
from exporter.exposition.families import Filled
from exporter.model.devices import Assignment, Holder, Match
from exporter.model.pages import Subject
from exporter.model.snapshot import Snapshot
from exporter.outputs.devices import all_devices, cut_gpus, entity_of, explainer, seen_devices
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer
from exporter.telemetry import DEVICE_OWNERS, MAP_INFO, POD_GPU_INFO


def families(snapshot: Snapshot) -> tuple[Filled, ...]:
    """The mapping families. A device without samples is there with what the kubelet alone knows of it."""
    devices = all_devices(snapshot)
    cut = cut_gpus(devices)
    return (
        Filled(
            DEVICE_OWNERS,
            tuple(
                (
                    # a device without a UUID goes by its name: two of them are not one
                    (device.key.uuid, device.instance, device.index, entity_of(device, cut), snapshot.node),
                    float(len(_holders(snapshot, device))),
                )
                for device in devices
            ),
        ),
        Filled(MAP_INFO, _map_info(snapshot)),
        Filled(
            POD_GPU_INFO,
            tuple(
                (
                    (
                        holder.owner.namespace,
                        holder.owner.pod,
                        holder.owner.container,
                        subject.uuid,
                        subject.index,
                        subject.device,
                        subject.model,
                        holder.resource,
                        subject.instance,
                        subject.profile,
                        snapshot.node,
                    ),
                    1.0,
                )
                for subject in devices
                for holder in _holders(snapshot, subject)
            ),
        ),
    )


def node_families(snapshots: Iterable[Snapshot]) -> tuple[Filled, ...]:
    """/metrics/nodes: one family `<node>_info` for each node, shared by nodes whose names come out alike."""
    rows: dict[str, dict[tuple[tuple[str, ...], float], None]] = {}
    for snapshot in snapshots:
        rows.setdefault(family_name_of(snapshot.node), {}).update(dict.fromkeys(_map_info(snapshot)))
    return tuple(
        Filled(replace(MAP_INFO, name=name, help="A pod of this node that holds a GPU; always 1."), tuple(samples))
        for name, samples in rows.items()
    )


def family_name_of(node: str) -> str:
    """`gpu-node-1` becomes `gpu_node_1_info`, `10.0.0.1` becomes `_10_0_0_1_info`."""
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", node) + "_info"
    return f"_{name}" if name[0].isdigit() else name


def debug(snapshot: Snapshot) -> dict[str, Any]:
    """/debug/mapping: every device id the kubelet named, every device seen in samples, and why one has no match."""
    words = explainer(snapshot)
    return {
        "node": snapshot.node,
        "assignments_age_seconds": snapshot.assignments_age_seconds,
        "sources": {
            name: {"up": state.up, "reason": state.reason, "message": state.message, "remedy": state.remedy}
            for name, state in snapshot.health.items()
        },
        "assigned": [
            *(
                {
                    **_assigned(match.assignment),
                    **_resolved(match),
                    "reason": match.reason,
                    "explanation": str(words.assigned(match) or ""),
                }
                for match in snapshot.owners.matches
            ),
            *(
                {
                    **_assigned(assignment),
                    **_resolved(None),
                    "reason": "dra_off" if is_unfollowed_claim(assignment, snapshot.facts) else "outside_resources",
                    "explanation": str(words.outside(assignment)),
                }
                for assignment in snapshot.facts.outside
            ),
        ],
        "seen": [
            {
                "uuid": subject.uuid,
                "gpu_i_id": subject.instance,
                "gpu_i_profile": subject.profile,
                "gpu": subject.index,
                "device": subject.device,
                "model": subject.model,
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
    }


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


def _map_info(snapshot: Snapshot) -> tuple[tuple[tuple[str, ...], float], ...]:
    rows = {
        (
            (subject.key.uuid, subject.model, holder.owner.namespace, snapshot.node, holder.owner.pod),
            1.0,
        ): None
        for subject in all_devices(snapshot)
        for holder in _holders(snapshot, subject)
    }
    return tuple(rows)


def _make(look: Look) -> Answer:
    text = json.dumps({**look.about, **debug(look.snapshot)}, indent=2) + "\n"
    return answer(JSON_FORMAT, text.encode())


OUTPUT = Output(
    path="/debug/mapping",
    says="every device, its owner, and why one has none",
    make=_make,
    needs=frozenset({Need.NODE, Need.DIAGNOSIS}),
)
