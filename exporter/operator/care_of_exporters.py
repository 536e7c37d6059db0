"""GPUExporters: the objects of exporters.py, and a status that says how many nodes there are and how many are ready."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime

from exporter.operator.care import Outcome, Unfit
from exporter.operator.exporters import all_references, desired
from exporter.operator.kinds import DAEMON_SET, GPU_EXPORTER, POD_MONITOR, AnyObject, Key, Kind, Object, metadata, text
from exporter.operator.reading import Invalid
from exporter.operator.resources import read_exporter


class CareOfExporters:
    """What runs on nodes."""

    kind = GPU_EXPORTER
    is_exclusive = False
    look_again_seconds: float | None = None

    def may_have(self, owner: Key) -> Sequence[Key]:
        """Every object that a GPUExporter of this name may have."""
        return [Key(found.kind, found.namespace, found.name) for found in all_references(owner.name, owner.namespace)]

    async def wanted(self, owner: AnyObject, served: AbstractSet[Kind]) -> Sequence[Object]:
        """The objects that it stands for.

        Raises:
            Unfit: a field cannot be used.
        """
        try:
            spec = read_exporter(owner)
        except Invalid as error:
            raise Unfit("Invalid", str(error)) from error
        about = metadata(owner)
        return desired(
            text(about, "name"),
            text(about, "namespace"),
            text(about, "uid"),
            spec,
            pod_monitors=POD_MONITOR in served,
        )

    async def status(self, outcome: Outcome) -> Mapping[str, object]:
        """Its status, whole."""
        return plain_status(outcome, datetime.now(UTC))


def plain_status(outcome: Outcome, now: datetime) -> Mapping[str, object]:
    """What the API server knows of it: what the exporters themselves say is not asked here."""
    owner, about = outcome.owner, metadata(outcome.owner)
    daemon_set = next((item for key, item in outcome.live.items() if key.kind == DAEMON_SET.name), {})
    state = daemon_set.get("status")
    state = state if isinstance(state, Mapping) else {}
    wanted, ready = _number(state.get("desiredNumberScheduled")), _number(state.get("numberReady"))
    rolls = _number(state.get("updatedNumberScheduled")) < wanted or state.get("observedGeneration") != metadata(
        daemon_set
    ).get("generation")
    nodes = f"{ready} of {wanted} nodes are ready"
    said = {
        "Ready": (not outcome.reason and ready >= wanted, outcome.reason or "Nodes", outcome.why or nodes),
        "Progressing": (not outcome.reason and (rolls or ready < wanted), outcome.reason or "Nodes", nodes),
        "Degraded": (bool(outcome.reason), outcome.reason or "AsWanted", outcome.why or "all is as it is wanted"),
    }
    before = owner.get("status")
    old = before.get("conditions") if isinstance(before, Mapping) else None
    return {
        "observedGeneration": _number(about.get("generation")),
        "conditions": [
            _condition(kind, *what, old if isinstance(old, list) else [], about, now) for kind, what in said.items()
        ],
        "nodesWanted": wanted,
        "nodesReady": ready,
    }


def _condition(
    kind: str, is_so: bool, reason: str, message: str, old: Sequence[object], about: AnyObject, now: datetime
) -> Mapping[str, object]:
    status = "True" if is_so else "False"
    at = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    for before in old:
        if isinstance(before, Mapping) and before.get("type") == kind and before.get("status") == status:
            at = text(before, "lastTransitionTime") or at
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message[:1024],
        "lastTransitionTime": at,
        "observedGeneration": _number(about.get("generation")),
    }


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0
