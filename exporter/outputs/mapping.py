"""/debug/mapping: every device id that the kubelet named, every device of the samples, and why one has no match."""

import json
from typing import Any

from exporter.attribution.explain import is_unfollowed_claim
from exporter.model.devices import Assignment, Holder, Match
from exporter.model.pages import Subject
from exporter.model.snapshot import Snapshot
from exporter.outputs.devices import explainer, seen_devices
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer


def debug(snapshot: Snapshot) -> dict[str, Any]:
    """The devices of a look, as JSON."""
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


def _make(look: Look) -> Answer:
    text = json.dumps({**look.about, **debug(look.snapshot)}, indent=2) + "\n"
    return answer(JSON_FORMAT, text.encode())


OUTPUT = Output(
    path="/debug/mapping",
    says="every device, its owner, and why one has none",
    make=_make,
    needs=frozenset({Need.NODE, Need.DIAGNOSIS}),
)
