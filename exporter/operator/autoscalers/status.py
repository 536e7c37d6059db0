"""A GPUAutoscaler, what was done for it and what its autoscaler says → its status. Pure.

What was known stays where it is not known now: a scale of an hour ago outlives the event that told of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from exporter.operator.autoscalers.choice import Via
from exporter.operator.autoscalers.hindrance import Hindrance
from exporter.operator.autoscalers.scaling import Decision
from exporter.operator.objects.conditions import Verdict, conditions_of
from exporter.operator.objects.kinds import Object
from exporter.operator.objects.obstacles import Obstacle
from exporter.operator.objects.parts import AnyObject, mapping, number

# The fields that tell of the object that scales.
_FOUND = ("via", "currentReplicas", "desiredReplicas")
_WHAT = {"keda": "KEDA scales the workload", "hpa": "a HorizontalPodAutoscaler scales the workload"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaled:
    """How a GPUAutoscaler is.

    `trouble` is what is wrong with it or its target; `obstacles` are why its object could not be written, the worst
    first; `waits_for` says what has to go before. `via` is None where nothing scales. `is_known` is False where the API
    server did not say what there is.
    """

    is_known: bool = True
    via: Via | None = None
    decision: Decision | None = None
    trouble: Hindrance | None = None
    obstacles: Sequence[Obstacle] = field(default=())
    waits_for: str = ""


def autoscaler_status(owner: AnyObject, scaled: Scaled, now: datetime) -> Object:
    """The whole status. `owner` is the GPUAutoscaler with the status that it has; `now` is in UTC."""
    old = mapping(owner, "status")
    generation = number(mapping(owner, "metadata"), "generation") or 0
    status: Object = {"observedGeneration": generation}
    if not scaled.is_known:
        status |= {name: old[name] for name in _FOUND if name in old}
    if scaled.via:
        status["via"] = scaled.via
    decision = scaled.decision
    if decision is not None:
        last = decision.last_scale.as_object() if decision.last_scale else None
        known = {"currentReplicas": decision.replicas, "desiredReplicas": decision.wanted, "lastScale": last}
        status |= {name: value for name, value in known.items() if value is not None}
    elif "lastScale" in old:
        # the API server forgets events after an hour
        status["lastScale"] = old["lastScale"]
    status["conditions"] = conditions_of({"Ready": _ready(scaled)}, old, generation, now)
    return status


def _ready(scaled: Scaled) -> Verdict:
    trouble, decision = scaled.trouble, scaled.decision
    if scaled.obstacles:
        return Verdict("False", scaled.obstacles[0].reason, scaled.obstacles[0].message)
    if trouble is not None and trouble.blocks:
        return Verdict("False", trouble.reason, trouble.message)
    if scaled.waits_for:
        return Verdict("False", "Waiting", f"it waits for {scaled.waits_for}")
    if decision is None or scaled.via is None or not decision.has_spoken:
        return Verdict("Unknown", "Starting", "the autoscaler has just been made, and has not looked at its metric yet")
    if decision.trouble is not None:
        return Verdict("False", decision.trouble.reason, decision.trouble.message)
    if trouble is not None:
        return Verdict("True", trouble.reason, trouble.message)
    if decision.is_idle:
        return Verdict("True", "Idle", "nothing has used the workload's GPUs for idleSeconds: it has no pods")
    limited = f", within its bounds: {decision.limited}" if decision.limited else ""
    return Verdict("True", "Limited" if limited else "Scaling", f"{_WHAT[scaled.via]}{limited}")
