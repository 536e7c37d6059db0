"""`why POD`: a pod from the Kubernetes API, and its node's /debug/mapping → why it has GPU metrics, or none. Pure.

Tests: tests/kubectl/test_parts.py.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import chain

from exporter.errors import ExporterError
from exporter.kubectl.binary import place_of
from exporter.lenient import AnyObject, finite, mapping, mappings, text
from exporter.outputs.diagnosis import Diagnosis, Finding, Level, fine, problem, read_report, warning
from exporter.wording import granted_amounts

_MOST_DEVICES = 50_000
_MEASURES = ("memory_mib", "cores_percent", "fraction")
_ENDED = ("Succeeded", "Failed")
_LIMITS = "raise resources.limits.memory, or let it take less of the machine's memory"
# the subjects of findings that concern every pod of the node
_SOURCES = ("kubelet", "dcgm", "file", "page", "attribution", "settings")


def before_the_node(pod: AnyObject) -> Diagnosis | None:
    """The diagnosis that the pod's own object allows; None if its node must be asked."""
    name = "/".join(place_of(pod))
    status = mapping(pod, "status")
    phase = text(status, "phase")
    if phase in _ENDED:
        ended = _diagnosis(fine(name, f"it has ended ({phase}): the kubelet took its devices back"))
        return replace(ended, findings=(*ended.findings, *_killed(name, status)))
    if not asks_for(pod):
        remedy = "to give it a GPU, set resources.limits, such as nvidia.com/gpu: 1, or name a claim"
        return _diagnosis(fine(name, "no container of it asks for a device", remedy))
    if not text(mapping(pod, "spec"), "nodeName"):
        conditions = mappings(status, "conditions")
        why = next(
            (text(condition, "message") for condition in conditions if condition.get("type") == "PodScheduled"), ""
        )
        remedy = f"kubectl describe pod shows why; kubectl gpu idle shows {', '.join(asks_for(pod))} that nobody uses"
        return _diagnosis(problem(name, f"it runs on no node yet{': ' if why else ''}{why}", remedy))
    return None


def asks_after_its_end(pod: AnyObject) -> bool:
    """Whether the exporter on the pod's node may know more of its end: it failed, and had asked for a device."""
    has_failed = text(mapping(pod, "status"), "phase") == "Failed"
    return has_failed and bool(asks_for(pod)) and bool(text(mapping(pod, "spec"), "nodeName"))


def with_findings_of_node(diagnosis: Diagnosis, pod: AnyObject, about: AnyObject) -> Diagnosis:
    """The diagnosis of a pod that has ended, with what doctor says of the pod itself on its node."""
    name = "/".join(place_of(pod))
    try:
        of_node = tuple(_about(name, set(), read_report(about["doctor"])))
    except (KeyError, TypeError, ValueError):
        return diagnosis  # an exporter of another version
    of_pod = (finding for finding in of_node if finding.about.startswith(f"{name}/"))
    return replace(diagnosis, findings=(*diagnosis.findings, *of_pod))


def asks_for(pod: AnyObject) -> Sequence[str]:
    """The extended resources (those with a domain) in the limits of a pod's containers, and its claims."""
    spec = mapping(pod, "spec")
    containers = chain(mappings(spec, "initContainers"), mappings(spec, "containers"))
    limits = [name for container in containers for name in mapping(container, "resources", "limits") if "/" in name]
    claims = [f"the claim {text(resourceClaim, 'name')}" for resourceClaim in mappings(spec, "resourceClaims")]
    return [*dict.fromkeys((*limits, *claims))]


def explain(pod: AnyObject, about: AnyObject) -> Diagnosis:
    """The findings of doctor on the pod's node about the pod, its devices, and the node's sources.

    Raises:
        ExporterError: the exporter on the node is of another version.
    """
    name = "/".join(place_of(pod))
    assigned = mappings(about, "assigned", _MOST_DEVICES)
    of_pod = [assignment for assignment in assigned if f"{assignment.get('namespace')}/{assignment.get('pod')}" == name]
    try:
        findings = (*_about(name, {text(assignment, "uuid") for assignment in of_pod}, read_report(about["doctor"])),)
    except (KeyError, TypeError, ValueError) as error:
        raise ExporterError(f"the exporter on the node of {name} is of another version -> update this one") from error
    findings = (*findings, *_killed(name, mapping(pod, "status")))
    if of_pod:
        matched = sum(assignment.get("matched") is True for assignment in of_pod)
        return Diagnosis(
            summary=f"{matched} of {len(of_pod)} devices of {name} have metrics with its name",
            findings=(*_granted(of_pod, about), *findings),
        )
    remedy = "a device is listed once its container starts: look again in some seconds, and at kubectl describe pod"
    missing = problem(name, f"it asks for {', '.join(asks_for(pod))}, and the kubelet lists no device for it", remedy)
    return Diagnosis(summary=f"{name} has no device", findings=(missing, *findings))


def _killed(name: str, status: AnyObject) -> Iterator[Finding]:
    """The containers that the kernel killed for their limit of the machine's memory, by the pod's status."""
    for container in chain(mappings(status, "initContainerStatuses"), mappings(status, "containerStatuses")):
        for state in ("state", "lastState"):
            terminated = mapping(container, state, "terminated")
            if text(terminated, "reason") != "OOMKilled":
                continue
            killed = text(container, "name")
            says = (
                f"the kernel killed its container {killed}{_at(text(terminated, 'finishedAt'))} (OOMKilled): it needed"
                " more of the machine's memory than its limit, which says nothing of the GPU's memory"
            )
            yield warning(f"{name}/{killed}", says, _LIMITS)
            break


def _at(time: str) -> str:
    """` at 12:03 UTC` of a Time of meta/v1; "" if it is none."""
    try:
        return f" at {datetime.fromisoformat(time).astimezone(UTC):%H:%M} UTC"
    except (ValueError, OverflowError):
        return ""


def _granted(assigned: Sequence[AnyObject], about: AnyObject) -> Iterator[Finding]:
    """What an allocator granted each container of the pod, once for each device that it is sure to have."""
    numbers = {text(device, "uuid"): text(device, "gpu") for device in mappings(about, "seen", _MOST_DEVICES)}
    parts: dict[tuple[str, str], None] = {}
    for assignment in assigned:
        amounts = granted_amounts(*(finite(assignment, f"requested_{measure}") for measure in _MEASURES))
        uuid = text(assignment, "uuid")
        if amounts and uuid:
            container = "/".join(text(assignment, name) for name in ("namespace", "pod", "container"))
            device = f"GPU {numbers.get(uuid) or uuid}"
            parts[container, f"{text(assignment, 'allocator')} gave it {' and '.join(amounts)} of {device}"] = None
    yield from (fine(container, message) for container, message in parts)


def _about(name: str, uuids: set[str], report: Diagnosis) -> Iterator[Finding]:
    """The findings that name the pod or its devices, and the problems of the node's sources."""

    def is_meant(what: str) -> bool:
        return f"{name}/" in what or what in uuids

    for finding in report.findings:
        devices = tuple(filter(is_meant, finding.devices))
        if len(devices) == 1:
            yield replace(finding, about=devices[0], devices=())
        elif devices:
            yield replace(finding, about=f"{len(devices)} of its devices", devices=devices)
        elif is_meant(finding.about) or (
            finding.level is Level.PROBLEM and finding.about.partition(":")[0] in _SOURCES
        ):
            yield finding


def _diagnosis(finding: Finding) -> Diagnosis:
    return Diagnosis(summary=f"{finding.about} has no GPU metrics", findings=(finding,))
