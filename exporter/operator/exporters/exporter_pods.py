"""The troubles that keep an exporter from running on its node, from its pod's status. Pure.

A pod that starts has no trouble. While the kubelet retries, the reason of a failure changes with each try (ErrImagePull
and ImagePullBackOff; CrashLoopBackOff, running, ended), and so do the numbers in its message. Here a failure has one
reason and one text as long as it lasts, so that the status of the custom resource does not change with each try.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from exporter.errors import Trouble
from exporter.lenient import AnyObject, mapping, mappings, number, text
from exporter.operator.objects.kinds import metadata, name_of
from exporter.operator.objects.object_fields import condition, is_going, moment, word
from exporter.wording import one_line

# as sources of trouble
POD = "pod"
EXPORTER = "exporter"
# A pod that is not ready after this time no longer counts as starting (a Deployment's own limit,
# progressDeadlineSeconds). The image of dcgm-exporter has some hundred megabytes.
STARTING_SECONDS = 600.0
# A container that ended with an error less than this time ago has not recovered: the kubelet starts it again after at
# most 5 minutes, and forgets the failure after 10.
CRASHED_SECONDS = 600.0
MOST_CHARS = 1024
_MOST_NAME_CHARS = 253
_MOST_TOLD_CHARS = 300
# A container that starts this often within CRASHED_SECONDS is in a loop.
_LOOP = 3
_TRYING_AGAIN = {"ErrImagePull": "ImagePullBackOff", "RegistryUnavailable": "ImagePullBackOff"}
_STARTING = frozenset({"", "ContainerCreating", "PodInitializing"})
_PULLS = frozenset({"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ErrImagePull"})
_ENDED = frozenset({"Failed", "Succeeded"})
# Words of container runtimes and registries, why the pull failed, and what to do. The first line that fits counts.
_WHY_NO_IMAGE = (
    (r"not found|manifest unknown|does not exist|name unknown", "the registry does not have it", "is its name right?"),
    (
        r"unauthori[sz]ed|denied|forbidden|authentication|credentials|40[13]\b",
        "the registry refuses it",
        "name a Secret with the registry's password in spec.imagePullSecrets",
    ),
    (
        r"no such host|timeout|timed out|refused|unreachable|i/o|no route|reset by peer|tls|x509|EOF",
        "the registry cannot be reached from the node",
        "let the node reach the registry, or name an image of one that it reaches",
    ),
    (
        r"toomanyrequests|rate limit|429",
        "the registry limits how often it is asked",
        "name an image of another registry",
    ),
    (r"no space left", "the node's disk is full", "make room on the node"),
    (r"no match for platform|exec format", "it is not for the node's architecture", "name an image that is"),
)


class NodeTrouble(NamedTuple):
    """A row of a status' `troubles`: a Trouble with its node and its source. `message` is its whole text on one line.

    `source` is a source of the node's exporter (kubelet, dcgm:127.0.0.1:9401), `exporter` if that does not answer, or
    `pod`.
    """

    node: str
    source: str
    reason: str
    message: str


def on_node(node: str, source: str, trouble: Trouble) -> NodeTrouble:
    """A trouble on a node, cut to the lengths that the status allows."""
    return NodeTrouble(
        one_line(node, _MOST_NAME_CHARS),
        one_line(source, _MOST_NAME_CHARS),
        one_line(trouble.reason, 63),
        one_line(str(trouble), MOST_CHARS),
    )


def node_of(pod: AnyObject) -> str:
    """The node of a DaemonSet's pod, or the one that its affinity names; "" if it names none."""
    spec = mapping(pod, "spec")
    name = text(spec, "nodeName")
    if name:
        return name
    required = mapping(spec, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in mappings(required, "nodeSelectorTerms"):
        for field in mappings(term, "matchFields"):
            names = field.get("values")
            if field.get("key") == "metadata.name" and isinstance(names, list) and names and isinstance(names[0], str):
                return names[0]
    return ""


def is_ready(pod: AnyObject) -> bool:
    """Whether the kubelet says that the whole pod works."""
    return condition(mapping(pod, "status"), "Ready").status == "True"


def age_seconds(pod: AnyObject, now: datetime) -> float:
    """The pod's age; 0 if its time of creation is missing."""
    made = moment(metadata(pod), "creationTimestamp")
    return max(0.0, (now - made).total_seconds()) if made else 0.0


def pod_troubles(pod: AnyObject, now: datetime) -> Iterator[NodeTrouble]:
    """The troubles of a pod; none while it starts, works, or is being replaced."""
    if is_going(pod):
        return
    name = one_line(name_of(pod), _MOST_NAME_CHARS)
    node = node_of(pod) or f"(the node of pod {name})"
    of_pod = _of_pod(pod, name) or next(_of_containers(pod, name, now), None)
    if of_pod is None and not is_ready(pod) and age_seconds(pod, now) >= STARTING_SECONDS:
        of_pod = Trouble(
            "NotReady",
            f"its pod {name} has not become ready within {STARTING_SECONDS / 60:g} minutes{_what_waits(pod)}",
            f"kubectl describe pod {name} says what it waits for",
        )
    if of_pod:
        yield on_node(node, POD, of_pod)


def _of_pod(pod: AnyObject, name: str) -> Trouble | None:
    """The trouble of a pod as a whole, if it has one: it finds no place, has ended, or its node is silent."""
    status = mapping(pod, "status")
    scheduled = condition(status, "PodScheduled")
    if scheduled.reason == "Unschedulable":
        message = _without_numbers(scheduled.message)
        return Trouble(
            "Unschedulable",
            f"its pod {name} finds no place: {message or 'the scheduler does not say why'}",
            "make room on the node (cpu, memory, pods), or ask for less with spec.resources",
        )
    if text(status, "phase") in _ENDED:
        message = one_line(text(status, "message").partition(". ")[0], _MOST_TOLD_CHARS)
        reason = word(text(status, "reason")) or "Failed"
        return Trouble(
            reason,
            f"its pod {name} has ended{': ' if message else ''}{message}",
            "it is made again; if that does not help, look at the node",
        )
    # The node controller sets Ready to False, and leaves ContainersReady as the kubelet wrote it last.
    if condition(status, "Ready").status == "False" and condition(status, "ContainersReady").status == "True":
        message = "the node's kubelet does not report to Kubernetes any more"
        return Trouble("NodeLost", message, "look at the node: is it up?")
    return None


def _of_containers(pod: AnyObject, name: str, now: datetime) -> Iterator[Trouble]:
    """A trouble for each container that has no image, crashes or cannot start. An old crash does not count."""
    status = mapping(pod, "status")
    for container in (*mappings(status, "initContainerStatuses"), *mappings(status, "containerStatuses")):
        called = one_line(text(container, "name"), 63)
        waiting = mapping(container, "state", "waiting")
        reason = one_line(text(waiting, "reason"), 63)
        crash = _crash(container, now)
        if reason in _PULLS:
            yield _no_image(_TRYING_AGAIN.get(reason, reason), container, called, text(waiting, "message"))
        elif reason == "CrashLoopBackOff":
            yield _crashed(mapping(container, "lastState", "terminated"), called, name)
        elif crash:
            yield _crashed(crash, called, name)
        elif reason not in _STARTING:
            message = one_line(text(waiting, "message"), _MOST_TOLD_CHARS) or "the kubelet does not say why"
            remedy = f"mend what it names; kubectl describe pod {name} says more"
            yield Trouble(reason, f"its container {called} cannot start: {message}", remedy)


def _crash(container: AnyObject, now: datetime) -> AnyObject | None:
    """The last end of a container that ends again and again, also while it runs in between; None if it does not."""
    restarts = number(container, "restartCount") or 0
    ended_now = mapping(container, "state", "terminated")
    ended = ended_now or mapping(container, "lastState", "terminated")
    if not ended or number(ended, "exitCode") == 0:
        return None
    if ended_now or container.get("ready") is not True:
        return ended
    time = moment(ended, "finishedAt")
    lately = time is not None and (now - time).total_seconds() < CRASHED_SECONDS
    return ended if lately and restarts >= _LOOP else None


def _crashed(ended: AnyObject, called: str, name: str) -> Trouble:
    reason = "CrashLoopBackOff"
    if text(ended, "reason") == "OOMKilled":
        field = "dcgm" if "dcgm" in called else "exporter"
        remedy = f"raise spec.resources.{field}.limits.memory"
        return Trouble(reason, f"its container {called} needs more memory than its limit", remedy)
    code = ended.get("exitCode")
    how = f" with exit code {code}" if type(code) is int else ""
    hint = " (a field in spec.collectors that it does not know ends it)" if "dcgm" in called else ""
    remedy = f"kubectl logs --previous -c {called} {name} says why{hint}"
    return Trouble(reason, f"its container {called} ended{how}, and is started again", remedy)


def _no_image(reason: str, container: AnyObject, called: str, message: str) -> Trouble:
    image = one_line(text(container, "image"), _MOST_TOLD_CHARS)
    cannot = f"the image {image} of container {called} cannot be pulled"
    for fits, why, remedy in _WHY_NO_IMAGE:
        if re.search(fits, message[: 4 * MOST_CHARS], re.IGNORECASE):
            return Trouble(reason, f"{cannot}: {why}", remedy)
    remedy = "is its name right, does the node reach the registry, and does spec.imagePullSecrets name its password?"
    return Trouble(reason, cannot, remedy)


def _what_waits(pod: AnyObject) -> str:
    waits = [
        one_line(text(container, "name"), 63)
        for container in mappings(mapping(pod, "status"), "containerStatuses", 16)
        if container.get("ready") is not True
    ]
    return f" ({', '.join(waits)} not ready)" if waits else ""


def _without_numbers(message: str) -> str:
    """`0/5 nodes are available: 1 Insufficient cpu, 4 node(s) didn't match …. preemption: …` → `Insufficient cpu`."""
    first_part = message.partition("preemption:")[0].partition(" available:")[2] or message
    reasons = [part.strip().lstrip("0123456789 ") for part in first_part.rstrip(". ").split(",")]
    own = [reason for reason in reasons if reason and "didn't" not in reason and "not match" not in reason]
    return one_line(", ".join(sorted(own or reasons)), _MOST_TOLD_CHARS)
