"""A GPUExporter, what is there of it and what its nodes say → its status. Pure.

An unchanged truth gives an equal status: no age, no count of restarts and no time of a look is in it. What is not known
is not in it either.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from exporter.operator.exporters.nodes import (
    EXPORTER,
    POD,
    NodeTrouble,
    age_seconds,
    is_ready,
    node_of,
    pod_troubles,
    trouble,
)
from exporter.operator.exporters.rollout import Rollout, progress_of, readiness_of
from exporter.operator.exporters.summary import listed, summary
from exporter.operator.objects.conditions import Verdict, conditions_of
from exporter.operator.objects.obstacles import Obstacle
from exporter.operator.objects.parts import (
    AnyObject,
    condition,
    is_going,
    mapping,
    mappings,
    number,
    one_line,
    text,
    word,
)

Object = dict[str, Any]
MOST_TROUBLES = 20
# The reasons of the condition Ready that say how far the nodes are; others are of an `Obstacle`.
NOT_OBSTACLES = frozenset({"Starting", "NoNodes", "AllNodesReady", "NodesNotReady", "RollingOut"})
# What an exporter that starts says of its sources is believed after so long: dcgm-exporter starts beside it.
GRACE_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is there of a GPUExporter.

    `daemon_set` is None where there is none yet. `troubles` are what the exporters themselves say (`Looks.troubles`),
    None where they have not been asked yet. `obstacles` are why not all is as it is wanted, the worst first.
    """

    daemon_set: AnyObject | None = None
    pods: Sequence[AnyObject] = ()
    troubles: Sequence[NodeTrouble] | None = None
    obstacles: Sequence[Obstacle] = field(default=())


def status_of(exporter: AnyObject, seen: Seen, now: datetime) -> Object:
    """The whole status. `exporter` is the GPUExporter with the status that it has; `now` is in UTC."""
    old = mapping(exporter, "status")
    rollout = Rollout.of(seen.daemon_set)
    found = _troubles(seen, now)
    nodes = {each.node for each in found}
    blocked = Verdict("False", seen.obstacles[0].reason, _all_of(seen.obstacles)) if seen.obstacles else None
    generation = number(mapping(exporter, "metadata"), "generation") or 0
    status: Object = {"observedGeneration": generation}
    if rollout.is_known:
        status["nodesWanted"], status["nodesReady"] = rollout.wanted, rollout.ready
    verdicts = {
        "Ready": blocked or readiness_of(rollout, nodes),
        "Progressing": blocked or progress_of(rollout, nodes),
        "Degraded": _degraded(seen, found, rollout),
    }
    known_before = _said_before(old) if seen.troubles is None and not blocked else None
    if known_before:
        # nobody has been asked since this process began: what was known is not forgotten for that
        verdicts["Degraded"] = known_before
        status |= _troubles_before(old)
    elif found or seen.troubles is not None:
        status["nodesInTrouble"] = len(nodes)
        status["troubles"] = [each._asdict() for each in listed(found, MOST_TROUBLES)]
    status["conditions"] = conditions_of(verdicts, old, generation, now)
    return status


def _all_of(obstacles: Sequence[Obstacle]) -> str:
    return one_line("; ".join(dict.fromkeys(obstacle.message for obstacle in obstacles)), 4096)


def _said_before(old: AnyObject) -> Verdict | None:
    """The condition Degraded as the last process left it; None where it did not know either."""
    found = condition({"status": old}, "Degraded")
    reason, message = word(text(found, "reason")), text(found, "message")
    match found.get("status"):
        case "True":
            return Verdict("True", reason or "NodesInTrouble", message)
        case "False":
            return Verdict("False", reason or "NoTrouble", message)
    return None


def _troubles_before(old: AnyObject) -> Object:
    troubles = [
        trouble(*(text(item, name) for name in NodeTrouble._fields))
        for item in mappings(old, "troubles", MOST_TROUBLES)
    ]
    nodes = number(old, "nodesInTrouble")
    return {
        "nodesInTrouble": len({each.node for each in troubles}) if nodes is None else nodes,
        "troubles": [each._asdict() for each in troubles],
    }


def _troubles(seen: Seen, now: datetime) -> list[NodeTrouble]:
    """All that is wrong on nodes, in stable order."""
    pods = [pod for pod in seen.pods if not is_going(pod)]
    found = {each for pod in pods for each in pod_troubles(pod, now)}
    held = [obstacle for obstacle in seen.obstacles if obstacle.holds]
    found |= {trouble(node_of(pod), POD, each.reason, each.message) for pod in pods for each in held}
    ready = {node_of(pod) for pod in pods if is_ready(pod)}
    old_enough = {node_of(pod) for pod in pods if age_seconds(pod, now) >= GRACE_SECONDS}
    for each in seen.troubles or ():
        # an exporter that is not ready need not answer: its pod says why
        if each.node in (ready if each.source == EXPORTER else ready | old_enough):
            found.add(each)
    return sorted(found)


def _degraded(seen: Seen, found: Sequence[NodeTrouble], rollout: Rollout) -> Verdict:
    if seen.obstacles:
        others = [each for each in found if each.reason != seen.obstacles[0].reason]
        more = f"; besides: {summary(others, rollout.wanted)}" if others else ""
        return Verdict("True", seen.obstacles[0].reason, f"{_all_of(seen.obstacles)}{more}")
    if found:
        return Verdict("True", "NodesInTrouble", summary(found, rollout.wanted))
    if seen.troubles is None:
        return Verdict("Unknown", "NotAskedYet", "the exporters are being asked how their sources are")
    return Verdict("False", "NoTrouble", "no node says that anything fails")
