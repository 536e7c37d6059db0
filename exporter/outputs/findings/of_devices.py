"""What `doctor` finds at the devices: which are attributed, and why the others are not. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from exporter.accounting.instances import USUAL_SLICES, slices_of_model
from exporter.attribution.explain import Explainer, is_unfollowed_claim
from exporter.attribution.owners import Unmatched
from exporter.model.devices import Assignment, DeviceKey
from exporter.model.pages import Subject
from exporter.model.snapshot import Snapshot
from exporter.outputs.devices import explainer
from exporter.outputs.findings.report import Finding, Level, grouped

if TYPE_CHECKING:
    from exporter.model.pods import Owner

# What this program cannot resolve the page may know: dcgm-exporter may have attributed it already.
_UNRESOLVED = frozenset(
    {Unmatched.MIG_UNRESOLVED, Unmatched.UNKNOWN_ID, Unmatched.CLAIM_UNRESOLVED, Unmatched.AMBIGUOUS}
)


def summary(snapshot: Snapshot) -> str:
    """How many of the devices that containers hold have their owner on a sample. A share counts as a device."""
    if snapshot.assignments_age_seconds is None:
        return "the kubelet has not said which devices containers hold"
    by_page = _attributed_by_page(snapshot)
    held: dict[tuple[str, str], bool] = {}
    for match in snapshot.owners.matches:
        known = not match.reason or match.assignment in by_page
        id_of = _id_of(match.assignment)
        held[id_of] = held.get(id_of, True) and known
    for assignment in snapshot.facts.outside:
        if is_unfollowed_claim(assignment, snapshot.facts):
            held[_id_of(assignment)] = False
    if not held and snapshot.owners.units:
        return "no container holds a device by its name; some hold units of GPUs"
    if not held:
        return "no container holds a device"
    return f"{sum(held.values())} of {len(held)} devices attributed"


def of_attribution(snapshot: Snapshot) -> Iterator[Finding]:
    """What is true of all devices, or of many."""
    owners, joined = snapshot.owners, snapshot.joined
    if joined is None:
        return
    if any(match.reason == Unmatched.OTHER_NODE for match in owners.matches):
        says, remedy = explainer(snapshot).other_node
        yield Finding(level=Level.PROBLEM, about="page", says=says, remedy=remedy)
    for doubt in snapshot.inventory.doubts:
        yield Finding(level=Level.WARNING, about="inventory", says=doubt.says, remedy=doubt.remedy)
    yield from _of_unknown_slices(snapshot, joined.subjects)
    outside = snapshot.facts.outside
    none_is_a_claim = not any(is_unfollowed_claim(assignment, snapshot.facts) for assignment in outside)
    if outside and none_is_a_claim and not owners.matches and not owners.units:
        yield Finding(
            level=Level.PROBLEM,
            about="attribution",
            says="all that the kubelet handed out is outside --resources",
            remedy="see each of them below",
        )
    hidden = {
        subject.key
        for subject in joined.subjects
        if snapshot.facts.incoming_wins
        and subject.came_with
        and (holders := owners.of(subject.key))
        and all(holder.owner != subject.came_with for holder in holders)
    }
    if hidden:
        yield Finding(
            level=Level.WARNING,
            about="attribution",
            says=f"dcgm-exporter attributes already, and --labels.conflict keep hides the kubelet's word for"
            f" {len(hidden)} devices",
            remedy="use --labels.conflict replace, or start dcgm-exporter without -k (DCGM_EXPORTER_KUBERNETES)",
        )


def _of_unknown_slices(snapshot: Snapshot, subjects: Iterable[Subject]) -> Iterator[Finding]:
    """The models of GPUs that are cut, where nobody knows of how many compute slices their instances are parts."""
    by_nvml = {gpu.uuid.removeprefix("GPU-") for gpu in snapshot.inventory.gpus if gpu.slices}
    cut = {
        subject.model for subject in subjects if subject.instance and subject.uuid.removeprefix("GPU-") not in by_nvml
    }
    for model in sorted(model for model in cut if slices_of_model(model) is None):
        yield Finding(
            level=Level.WARNING,
            about="accounts",
            says=f"into how many compute slices a GPU of the model {model!r} can be cut is not known: its MIG instances"
            f" are counted as parts of {USUAL_SLICES}",
            remedy="let the exporter ask NVML (--nvml.mode), which knows it",
        )


def of_devices(snapshot: Snapshot) -> tuple[Finding, ...]:
    """One finding a cause: devices that fare alike are named together."""
    words = explainer(snapshot)
    return grouped((*_matched(snapshot, words), *_units(snapshot, words), *_left_out(snapshot, words)))


def _matched(snapshot: Snapshot, words: Explainer) -> Iterator[tuple[str, Finding]]:
    by_page = _attributed_by_page(snapshot)
    for match in snapshot.owners.matches:
        name = _name_of(match.assignment)
        if not match.reason and match.key is not None:
            says = f"{_device(match.key)}, {match.samples} samples"
            yield name, Finding(level=Level.OK, about=name, says=says)
        elif match.assignment in by_page:
            says = "not known here, but the page names its container itself, and that is kept"
            yield name, Finding(level=Level.OK, about=name, says=says)
        elif snapshot.joined is not None and match.reason != Unmatched.OTHER_NODE:
            # without a page, or with another node's, that is the cause, and another finding names it
            advice = words.assigned(match)
            if advice is not None:
                yield name, Finding(level=Level.PROBLEM, about=name, says=advice.says, remedy=advice.remedy)


def _units(snapshot: Snapshot, words: Explainer) -> Iterator[tuple[str, Finding]]:
    """Containers that hold units: nothing is wrong where their processes show which GPU they use."""
    says, remedy = words.units
    for held in snapshot.owners.units:
        owner = held.owner
        name = f"{held.units} of {held.resource} ({owner.namespace}/{owner.pod}/{owner.container})"
        if snapshot.measured is None:
            yield name, Finding(level=Level.WARNING, about=name, says=says, remedy=remedy)
        else:
            yield name, Finding(level=Level.OK, about=name, says=f"{says}; NVML tells which one it uses")


def _left_out(snapshot: Snapshot, words: Explainer) -> Iterator[tuple[str, Finding]]:
    for assignment in snapshot.facts.outside:
        says, remedy = words.outside(assignment)
        level = Level.PROBLEM if is_unfollowed_claim(assignment, snapshot.facts) else Level.WARNING
        name = _name_of(assignment)
        yield name, Finding(level=level, about=name, says=says, remedy=remedy)


def _attributed_by_page(snapshot: Snapshot) -> frozenset[Assignment]:
    """The assignments that this program cannot resolve although the page names their owner itself.

    They count as attributed where the page names that owner on at least as many devices as are unresolved.
    """
    unresolved: dict[Owner, set[Assignment]] = defaultdict(set)
    for match in snapshot.owners.matches:
        if match.reason in _UNRESOLVED:
            unresolved[match.assignment.owner].add(match.assignment)
    named: Counter[Owner] = Counter()
    subjects = snapshot.joined.subjects if snapshot.joined and unresolved else ()
    for owner, _ in {(subject.came_with, subject.key) for subject in subjects if not _is_held(snapshot, subject.key)}:
        if owner is not None:
            named[owner] += 1
    return frozenset(assignment for owner, of in unresolved.items() if named[owner] >= len(of) for assignment in of)


def _is_held(snapshot: Snapshot, key: DeviceKey) -> bool:
    return bool(snapshot.owners.of(key))


def _id_of(assignment: Assignment) -> tuple[str, str]:
    return assignment.resource, assignment.device_id


def _device(key: DeviceKey) -> str:
    return f"{key.uuid} instance {key.instance}" if key.instance else key.uuid


def _name_of(assignment: Assignment) -> str:
    owner = assignment.owner
    return f"{assignment.device_id} ({assignment.resource}, {owner.namespace}/{owner.pod}/{owner.container})"
