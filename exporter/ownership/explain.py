"""The texts that say why an assigned device has no samples, and why a device with samples, or a process, has no owner.

explain.json has the words that are always the same.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pkgutil import get_data
from typing import TYPE_CHECKING, Any, Final

from exporter.errors import Trouble
from exporter.model.devices import Assignment, DeviceRef, Inventory, Match, Owners
from exporter.model.pages import Subject
from exporter.model.snapshot import Health, LookContext
from exporter.ownership.allocators import ALLOCATORS
from exporter.ownership.owners import Unmatched, is_meant

if TYPE_CHECKING:
    from exporter.model.measured import WithoutOwner

_TEXTS: Mapping[str, Mapping[str, Any]] = json.loads(get_data(__package__, "explain.json") or b"")
# by a reason of `Unmatched`, or by another state of affairs
_SAYS: Mapping[str, Trouble] = {name: Trouble("", **row) for name, row in _TEXTS["troubles"].items()}
_HIDES_OWNERS: Mapping[str, str] = _TEXTS["hides_owners"]
# why a process on a GPU counts for no owner of the GPU
WITHOUT_OWNER: "Mapping[WithoutOwner, str]" = _TEXTS["without_owner"]  # type: ignore[assignment] # a test holds the keys
# why nobody can say which GPU a container holds that holds units
UNITS_NAME_NO_GPU: Final = _SAYS["units_name_no_gpu"]
# why a device has no owner where nothing is wrong
NOBODY: Final = "the kubelet names no container that holds this device; it leaves out init containers, which may"


@dataclass(eq=False)
class Explainer:
    """The explanations for one state of owners and one page. What is common to all devices is worked out once."""

    owners: Owners
    subjects: Iterable[Subject]
    context: LookContext
    inventory: Inventory
    kubelet_answered: bool

    def assigned(self, match: Match) -> Trouble | None:
        """The reason why an assignment has no samples; None if it has some."""
        if not match.reason:
            return None
        if match.reason == Unmatched.OTHER_NODE:
            return self.other_node
        if match.reason == Unmatched.ALLOCATOR and match.ref is not None:
            return ALLOCATORS[match.ref.allocator].trouble
        if match.reason == Unmatched.MIG_UNRESOLVED:
            return self._unresolved(match.ref.mig if match.ref else "")
        if match.reason == Unmatched.CLAIM_UNRESOLVED:
            if match.ref is not None and match.ref.minor:
                return Trouble(
                    "",
                    f"the CDI spec of this claim's device names /dev/nvidia{match.ref.minor}, and nothing here says"
                    " which GPU that is",
                    "mount nothing over /proc/driver/nvidia, where the driver says it, or let NVML tell (--nvml.mode)",
                )
            return _claim_unresolved(match.assignment, self.context)
        if match.reason == Unmatched.CONTRADICTED and match.ref is not None:
            return _contradicted(match.ref)
        if match.reason == Unmatched.NO_SAMPLE and match.key is not None and match.key.instance:
            return _SAYS["no_sample_of_instance"]
        return _SAYS[match.reason]

    def _unresolved(self, mig: str) -> Trouble:
        """The reason why the inventory does not say which instance a MIG UUID is."""
        trouble = next((doubt.trouble for doubt in self.inventory.doubts if mig in doubt.leaves_out), None)
        if trouble is not None:
            return Trouble("", f"the inventory leaves this MIG instance out: {trouble.message}", trouble.remedy)
        if any("nvml" in gpu.sources for gpu in self.inventory.gpus):
            return _SAYS["nvml_lacks_it"]
        if self.context.has_inventory_file:
            return _SAYS["file_lacks_it"]
        return _SAYS["specs_lack_it"] if any(gpu.mig for gpu in self.inventory.gpus) else _SAYS["no_inventory"]

    @cached_property
    def other_node(self) -> Trouble:
        """The page comes from another node: the numbers of UUIDs compared, and the usual cause."""
        seen = len({subject.uuid for subject in self.subjects if subject.uuid})
        handed_out = len({match.key for match in self.owners.matches if match.reason == Unmatched.OTHER_NODE})
        return Trouble(
            "",
            f"the page comes from another node: none of its {seen} UUIDs is among this kubelet's {handed_out}",
            "ask the dcgm-exporter of this very node (a ClusterIP Service in front of dcgm-exporter answers with any"
            " node's: use a container in the same pod, hostNetwork, or internalTrafficPolicy Local)",
        )

    def outside(self, assignment: Assignment) -> tuple[str, Trouble]:
        """The reason why an assignment is left out: as /debug/mapping names it, and in words."""
        claim = assignment.claim
        if claim is not None and not claim.driver:
            return "not_prepared", _SAYS["not_prepared"]
        if is_unfollowed_claim(assignment, self.context):
            return "dra_off", _SAYS["claims_are_off"]
        of_names = claim.cdi_names if claim is not None else ()
        places = [place for name in of_names if (place := self.inventory.places.get(name))]
        if claim is not None and not any(place.minor for place in places) and len(places) == len(of_names):
            return Unmatched.NO_GPU, _SAYS[Unmatched.NO_GPU]
        return "outside_resources", Trouble(
            "",
            f"resource {assignment.resource} is outside --resources ({', '.join(self.context.resources)})",
            f"if its devices are GPUs, add --resources {assignment.resource}",
        )

    def unowned(self, device: Subject) -> str:
        """The reason why a device with samples has no owner; "not known: …" if another problem may hide the owner."""
        why = self.why_unknown(device)
        return f"not known: {why}" if why else NOBODY

    def why_unknown(self, device: Subject) -> str:
        """The reason why a device may have an owner although none is known; "" if it certainly has none."""
        if not self.kubelet_answered:
            return "the kubelet has not answered yet"
        if self._claims_are_off:
            return "a DRA claim holds devices of this node, and --dra is off"
        return what_hides_owners(self._reasons, device) or (
            "containers hold units of this node's GPUs, whose ids name no GPU" if self.owners.units else ""
        )

    @cached_property
    def _reasons(self) -> set[str]:
        return {match.reason for match in self.owners.matches}

    @cached_property
    def _claims_are_off(self) -> bool:
        return any(is_unfollowed_claim(assignment, self.context) for assignment in self.context.outside)


def of_look(match: Match) -> tuple[str, Trouble]:
    """The reason why an assignment holds nothing: as /debug/mapping names it, and in words."""
    reason = "monitoring" if match.assignment.claim is None else "admin_access"
    return reason, _SAYS[reason]


def what_hides_owners(unmatched: Collection[str], device: Subject) -> str:
    """The text of those `unmatched` reasons (`Unmatched`) that may hide this device's owner; "" if none may."""
    for reason, why in _HIDES_OWNERS.items():
        if reason in unmatched and (device.instance or reason != Unmatched.MIG_UNRESOLVED):
            return why
    return ""


def is_kubelet_silent(kubelet: Health, owners: Owners) -> bool:
    """Whether devices seem to have no holders only because the kubelet does not say who holds them."""
    return not (owners.holders or owners.units or (kubelet.up and kubelet.reason != "no_pods"))


def is_unfollowed_claim(assignment: Assignment, context: LookContext) -> bool:
    """Whether an assignment is a claim that is left out only because of `--dra off`."""
    if assignment.claim is None or context.follows_claims:
        return False
    return is_meant(assignment.resource, context.resources, of_claim=True)


def _contradicted(ref: DeviceRef) -> Trouble:
    instance = f", GPU instance {ref.instance}" if ref.instance else ""
    return Trouble(
        "",
        f"the CDI spec of this claim's device names /dev/nvidia{ref.minor}{instance}, and its ResourceSlice or its CDI"
        f" name says {ref.uuid or ref.mig or ref.device}, which is another device",
        "no owner is shown until they agree: look at the pod of the DRA driver on this node",
    )


def _claim_unresolved(assignment: Assignment, context: LookContext) -> Trouble:
    claim = assignment.claim
    if context.slices_up is None or claim is None:
        return _SAYS["no_slices"]
    if (claim.driver, claim.pool, claim.device) in context.slice_devices:
        return Trouble(
            "",
            "the ResourceSlice of this device gives it no attribute uuid",
            f"samples know a GPU by its UUID: is there a newer driver {claim.driver}, or CDI names that hold it?",
        )
    if not context.slices_up:
        return Trouble(
            "",
            "no ResourceSlice that is known names this device, and the Kubernetes API tells of none now",
            "mend that first: see what is said of the source resourceslices",
        )
    return Trouble(
        "",
        "no ResourceSlice names this device now: a kubelet that starts deletes those of its node, and the"
        " driver publishes them again within a minute",
        f"wait a minute; if it stays so, look at the pod of the driver {claim.driver} on this node",
    )
