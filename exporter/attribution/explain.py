"""Why an assigned device has no samples, and why a device of samples has no owner: in words, with what to do."""

from collections.abc import Iterable
from typing import NamedTuple

from exporter.attribution.owners import Unmatched
from exporter.model import Assignment, Facts, Match, Owners, Subject


class Advice(NamedTuple):
    """What is so, and what to do about it."""

    says: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.says}: {self.remedy}"


def explain(match: Match, owners: Owners, subjects: Iterable[Subject], facts: Facts) -> Advice | None:
    """Why an assignment has no samples; None where samples of it came in."""
    if not match.reason:
        return None
    if match.reason == Unmatched.OTHER_NODE:
        return other_node(owners, subjects)
    if match.reason == Unmatched.MIG_UNRESOLVED:
        return _INVENTORY_LACKS_IT if facts.has_inventory else _NO_INVENTORY
    if match.reason == Unmatched.CLAIM_UNRESOLVED:
        return _claim_unresolved(match.assignment, facts)
    if match.reason == Unmatched.NO_SAMPLE and match.key is not None and match.key.instance:
        return Advice(
            f"no upstream page has a sample of MIG instance {match.key.instance} of {match.key.uuid}",
            "does dcgm-exporter export instances (its flag -d), and is this node's among the sources?",
        )
    return _ADVICE[Unmatched(match.reason)]


def other_node(owners: Owners, subjects: Iterable[Subject]) -> Advice:
    """The page comes from elsewhere: what was compared, and what usually causes it."""
    seen = len({subject.uuid for subject in subjects if subject.uuid})
    handed_out = len({match.key for match in owners.matches if match.key and match.reason == Unmatched.OTHER_NODE})
    return Advice(
        f"the page comes from another node: none of its {seen} UUIDs is among this kubelet's {handed_out}",
        "ask the dcgm-exporter of this very node (a ClusterIP Service in front of dcgm-exporter answers with any"
        " node's: use a container in the same pod, hostNetwork, or internalTrafficPolicy Local)",
    )


def outside(assignment: Assignment, facts: Facts) -> Advice:
    """A resource that `--resources` leaves out."""
    return Advice(
        f"resource {assignment.resource} is outside --resources ({', '.join(facts.resources)})",
        f"if its devices are GPUs, add --resources {assignment.resource}",
    )


def unowned(device: Subject, owners: Owners, *, kubelet_answered: bool) -> str:
    """Why a device that samples speak of has no owner, as far as it can be known."""
    if not kubelet_answered:
        return "the kubelet has not answered yet"
    reasons = {match.reason for match in owners.matches}
    if device.instance and Unmatched.MIG_UNRESOLVED in reasons:
        return "not known: the kubelet names MIG instances of this node by ids that nothing here resolves"
    if Unmatched.OTHER_NODE in reasons:
        return "not known: the page comes from another node than the kubelet's word"
    if reasons & {Unmatched.UNKNOWN_ID, Unmatched.CLAIM_UNRESOLVED, Unmatched.AMBIGUOUS}:
        return "not known: the kubelet handed out devices by ids that are not understood"
    return "the kubelet names no container that holds this device"


def _claim_unresolved(assignment: Assignment, facts: Facts) -> Advice:
    claim = assignment.claim
    if facts.slices_up is None or claim is None:
        return _NO_SLICES
    if (claim.driver, claim.pool, claim.device) in facts.slice_devices:
        return Advice(
            f"the ResourceSlice of {assignment.device_id} gives it no attribute uuid",
            f"samples know a GPU by its UUID: is there a newer driver {claim.driver}, or CDI names that hold it?",
        )
    if not facts.slices_up:
        return Advice(
            f"no ResourceSlice that is known names {assignment.device_id}, and the Kubernetes API tells of none now",
            "mend that first: see what is said of the source resourceslices",
        )
    return Advice(
        f"no ResourceSlice names {assignment.device_id} now: a kubelet that starts deletes those of its node, and the"
        " driver publishes them again within a minute",
        f"wait a minute; if it stays so, look at the pod of the driver {claim.driver} on this node",
    )


_NO_INVENTORY = Advice(
    "MIG id and no inventory: samples name an instance by its parent's UUID and GPU_I_ID, and nothing here says which"
    " instance this id is",
    "give --inventory.file the node's MIG layout, or let dcgm-exporter map it (its flag -k): what it says is kept",
)
_INVENTORY_LACKS_IT = Advice(
    "the inventory does not name this MIG instance",
    "was the GPU cut anew since it was written? Bring --inventory.file up to date",
)
_NO_SLICES = Advice(
    "no ResourceSlice and no CDI name says which GPU this claim's device is",
    "give the exporter access to the Kubernetes API: list and watch resourceslices (deploy/rbac.yaml)",
)
_ADVICE = {
    Unmatched.UNKNOWN_ID: Advice(
        "the form of this device id is not known",
        "if samples carry the id, or a part of it, add a rule for it with --device-rules",
    ),
    Unmatched.AMBIGUOUS: Advice(
        "this id is a GPU's number, and the pages have several GPUs of that number",
        "leave out the other vendor's page, or have samples carry a label for the name (--device-rules)",
    ),
    Unmatched.NO_SAMPLE: Advice(
        "no upstream page has a sample of this device",
        "is its dcgm-exporter among the sources, and does nvidia-smi on the node still list the GPU?",
    ),
}
