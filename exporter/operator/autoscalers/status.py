"""A GPUAutoscaler, what was done for it, what its autoscaler says → its status. What is not known now stays. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, number
from exporter.operator.autoscalers.choice import Via, Wanted
from exporter.operator.autoscalers.scaling import Decision
from exporter.operator.objects.fields import Condition, conditions_of
from exporter.operator.objects.resources import Object

# The fields that tell of the object that scales.
_FOUND = ("via", "currentReplicas", "desiredReplicas")
_WHAT = {"keda": "KEDA scales the workload", "hpa": "a HorizontalPodAutoscaler scales the workload"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledNow:
    """How a GPUAutoscaler is. `obstacles` are why its object could not be written, the worst first.

    `wanted` is None where the API server did not say what there is; `via` is None where nothing scales.
    """

    wanted: Wanted | None
    via: Via | None = None
    decision: Decision | None = None
    obstacles: Sequence[Trouble] = field(default=())


def autoscaler_status(owner: AnyObject, scaled: ScaledNow, now: datetime) -> Object:
    """The whole status. `owner` is the GPUAutoscaler with the status that it has; `now` is in UTC."""
    old = mapping(owner, "status")
    generation = number(mapping(owner, "metadata"), "generation") or 0
    status: Object = {"observedGeneration": generation}
    if scaled.wanted is None:
        status |= {name: old[name] for name in _FOUND if name in old}
    if scaled.via:
        status["via"] = scaled.via
    decision = scaled.decision
    if decision is not None:
        last = decision.last_scale.as_object() if decision.last_scale else None
        numbers = {"currentReplicas": decision.replicas, "desiredReplicas": decision.wanted, "lastScale": last}
        status |= {name: value for name, value in numbers.items() if value is not None}
    elif "lastScale" in old:
        # the API server forgets events after an hour
        status["lastScale"] = old["lastScale"]
    status["conditions"] = conditions_of({"Ready": _ready(scaled)}, old, generation, now)
    return status


def _ready(scaled: ScaledNow) -> Condition:
    decision, wanted = scaled.decision, scaled.wanted or Wanted()
    for trouble in (*scaled.obstacles, wanted.trouble):
        if trouble is not None:
            return Condition("False", trouble.reason, str(trouble))
    if wanted.waits_for:
        return Condition("False", "Waiting", f"it waits for {wanted.waits_for}")
    if decision is None or scaled.via is None or not decision.has_spoken:
        return Condition("Unknown", "Starting", "the autoscaler has just been made, and has not read its metric yet")
    if decision.trouble is not None:
        return Condition("False", decision.trouble.reason, str(decision.trouble))
    if wanted.misgiving is not None:
        return Condition("True", wanted.misgiving.reason, str(wanted.misgiving))
    if decision.is_idle:
        return Condition("True", "Idle", "nothing has used the workload's GPUs for idleSeconds: it has no pods")
    limited = f", within its bounds: {decision.limited}" if decision.limited else ""
    return Condition("True", "Limited" if limited else "Scaling", f"{_WHAT[scaled.via]}{limited}")
