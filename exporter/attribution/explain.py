"""Why an assigned device has no samples, and why a device of samples has no owner: in words, with what to do."""

from collections.abc import Iterable

from exporter.attribution.owners import Unmatched
from exporter.model import Assignment, Facts, Match, Owners, Subject


def explain(match: Match, owners: Owners, subjects: Iterable[Subject], facts: Facts) -> str:
    """One line for an assignment; "" where samples of it came in."""
    if not match.reason:
        return ""
    if match.reason == Unmatched.OTHER_NODE:
        return other_node(owners, subjects)
    if match.reason == Unmatched.MIG_UNRESOLVED:
        return _INVENTORY_LACKS_IT if facts.has_inventory else _NO_INVENTORY
    if match.reason == Unmatched.NO_SAMPLE and match.key is not None and match.key.instance:
        return _NO_SAMPLE_OF_INSTANCE.format(instance=match.key.instance, uuid=match.key.uuid)
    return _TEXTS[Unmatched(match.reason)]


def other_node(owners: Owners, subjects: Iterable[Subject]) -> str:
    """The page comes from elsewhere: what was compared, and what usually causes it."""
    seen = len({subject.uuid for subject in subjects if subject.uuid})
    handed_out = len({match.key for match in owners.matches if match.key and match.reason == Unmatched.OTHER_NODE})
    return (
        f"the page comes from another node: none of its {seen} UUIDs is among the {handed_out} that this kubelet handed"
        " out; ask the dcgm-exporter of this very node (a ClusterIP Service in front of dcgm-exporter answers with any"
        " node's: use hostNetwork, internalTrafficPolicy Local, or a container in the same pod)"
    )


def outside(assignment: Assignment, facts: Facts) -> str:
    """A resource that `--resources` leaves out."""
    globs = ", ".join(facts.resources)
    return (
        f"resource {assignment.resource} is outside --resources ({globs}); if its devices are GPUs, add --resources"
        f" {assignment.resource}"
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


_NO_INVENTORY = (
    "MIG id and no inventory: samples name an instance by its parent's UUID and GPU_I_ID, and nothing here says which"
    " instance this id is; give --inventory.file the node's MIG layout, or let dcgm-exporter map it (its flag -k): what"
    " it says is kept"
)
_INVENTORY_LACKS_IT = (
    "the inventory does not name this MIG instance: was the GPU cut anew since it was written? Bring --inventory.file"
    " up to date"
)
_NO_SAMPLE_OF_INSTANCE = (
    "no upstream page has a sample of MIG instance {instance} of {uuid}: does dcgm-exporter export instances (its flag"
    " -d f, or -d i), and is this node's among the sources?"
)
_TEXTS = {
    Unmatched.UNKNOWN_ID: (
        "the form of this device id is not known; if samples carry the id, or a part of it, add a rule for it with"
        " --device-rules"
    ),
    Unmatched.CLAIM_UNRESOLVED: (
        "no ResourceSlice and no CDI name says which GPU this claim's device is: give the exporter access to the"
        " Kubernetes API (list and watch resourceslices)"
    ),
    Unmatched.AMBIGUOUS: (
        "this id is a GPU's number, and the pages have several GPUs of that number: leave out the other vendor's page,"
        " or name the GPUs in --inventory.file"
    ),
    Unmatched.NO_SAMPLE: (
        "no upstream page has a sample of this device: is its dcgm-exporter among the sources, and does it see the GPU?"
    ),
}
