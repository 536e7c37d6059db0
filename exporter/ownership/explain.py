"""The texts that explain why an assigned device has no samples, and why a device or a process has no owner.

Tests: tests/ownership/test_claims.py, tests/ownership/test_tokens.py.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from exporter.errors import Trouble
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Claim, Inventory, Match, Owners
from exporter.model.pages import Subject
from exporter.model.snapshot import Health, LookContext
from exporter.ownership.allocators.allocator_table import named
from exporter.ownership.owners import Unmatched, is_meant

if TYPE_CHECKING:
    from exporter.model.measured import WithoutOwner

_CLAIMS_ARE_OFF = Trouble(
    "",
    "a DRA claim holds this device, and --dra is off",
    "leave --dra at auto, or set it to on (Kubernetes 1.36 also gives resources such as nvidia.com/gpu by claims)",
)
_NOT_PREPARED = Trouble(
    "",
    "the kubelet names no device of this claim: its driver has prepared nothing on this node",
    "nothing is wrong where the pod runs: some drivers need nothing on the node. A pod that waits has its reason in"
    " its events (kubectl describe pod)",
)
_NO_SAMPLE_OF_INSTANCE = Trouble(
    "",
    "no upstream page has a sample of this MIG instance",
    "does dcgm-exporter export instances (its flag -d), and is this node's among the sources? Was the instance cut"
    " since it started? It looks for instances at its start and on SIGHUP alone, and --dcgm.mode off follows by itself",
)
_NO_INVENTORY = Trouble(
    "",
    "MIG id and no inventory: samples name an instance by its parent's UUID and GPU_I_ID, and nothing here says which"
    " instance this id is",
    "mount /etc/cdi and /var/run/cdi with the node's CDI specs (nvidia-ctk cdi generate writes one), or give"
    " --inventory.file the node's MIG layout, or let dcgm-exporter map it (its flag -k): what it says is kept",
)
_NVML_LACKS_IT = Trouble(
    "",
    "NVML does not name this MIG instance",
    "was the GPU cut anew a moment ago? NVML is asked again within a minute; if it stays so, restart the device"
    " plugin, which hands out an id that is no more",
)
_FILE_LACKS_IT = Trouble(
    "",
    "the inventory does not name this MIG instance",
    "was the GPU cut anew since it was written? Bring --inventory.file up to date, or mount the node's CDI specs",
)
_SPECS_LACK_IT = Trouble(
    "",
    "the inventory does not name this MIG instance",
    "was the GPU cut anew? Have the CDI specs written anew (nvidia-ctk cdi generate, or a restart of the device"
    " plugin): they are followed within seconds",
)
_NO_SLICES = Trouble(
    "",
    "no CDI spec, no ResourceSlice and no CDI name says which GPU this claim's device is",
    "mount /var/run/cdi read-only, where NVIDIA's DRA driver writes a spec for each claim, or give the exporter access"
    " to the Kubernetes API: list and watch resourceslices (deploy/rbac.yaml)",
)
# why nobody can say which GPU a container holds that holds units
UNITS_NAME_NO_GPU: Final = Trouble(
    "",
    "its ids count units of GPUs and name no GPU: gpu-manager chooses the GPU by itself",
    "let NVML tell of its processes (--nvml.mode, hostPID): they show what it uses of which GPU",
)
_ADMIN_ACCESS = Trouble(
    "",
    "this claim has admin access: its container looks at the device and does not hold it",
    "nothing is wrong: monitoring claims GPUs this way, such as the GPU operator's dcgm-exporter, and it counts in no"
    " sum",
)
_MONITORING = Trouble(
    "",
    "this resource is for monitoring: its container looks at the node's devices and holds none",
    "nothing is wrong: the vendor's exporter asks for it, and it counts in no sum",
)
_RESERVATION = Trouble(
    "",
    "this pod reserves the GPU for an allocator, which shares it among other pods; it does not use the GPU",
    "nothing is wrong: the pods of its group hold the GPU, each a part",
)
# by the reason why an assignment has no samples, for reasons whose text is always the same
_OF_UNMATCHED: Mapping[str, Trouble] = {
    Unmatched.NO_GPU: Trouble(
        "",
        "this claim's device has no device node of an NVIDIA GPU: it is a network device or the like",
        "nothing is wrong: no samples of it are to be expected. If it is another vendor's GPU, name its driver with"
        " --resources",
    ),
    Unmatched.VFIO: Trouble(
        "",
        "a virtual machine has this GPU (vfio), so the node's driver cannot measure it",
        "nothing is wrong: for how long it is held is accounted, and no samples of it are to be expected",
    ),
    Unmatched.UNKNOWN_ID: Trouble(
        "",
        "the form of this device id is not known",
        "if samples carry the id, or a part of it, add a rule for it with --device-rules",
    ),
    Unmatched.AMBIGUOUS: Trouble(
        "",
        "this id is a GPU's number, and the pages have several GPUs of that number",
        "leave out the other vendor's page, or have samples carry a label for the name (--device-rules)",
    ),
    Unmatched.TOO_MANY_DEVICES: Trouble(
        "",
        "a page has more devices than are told apart, and no sample of this one is among the first",
        "is it the page of this node's dcgm-exporter alone, and not of a whole cluster?",
    ),
    Unmatched.UNNAMED: Trouble(
        "",
        "no sample says what this device id says: the exporter of the samples names its devices in another way",
        "have that exporter add a label that holds the id, and name the label in --device-rules, under samples; or say"
        " in an inventory (--inventory.file) which device of the samples (uuid) is which of the kubelet's (device)",
    ),
    Unmatched.NO_SAMPLE: Trouble(
        "",
        "no upstream page has a sample of this device",
        "is its dcgm-exporter among the sources, and does nvidia-smi on the node still list the GPU?",
    ),
}
_IDS_NOT_UNDERSTOOD = "the kubelet handed out devices by ids that are not understood"
# why a device may have an owner although none is known, by the reason of an assignment without samples
HIDES_OWNERS: Mapping[str, str] = {
    Unmatched.MIG_UNRESOLVED: "the kubelet names MIG instances of this node by ids that nothing here resolves",
    Unmatched.OTHER_NODE: "the page comes from another node than the kubelet's word",
    Unmatched.CLAIM_UNRESOLVED: "a DRA claim holds a device of this node, and nothing here says which",
    Unmatched.CONTRADICTED: "a DRA claim holds a device of this node, and its CDI spec contradicts its slice",
    Unmatched.ALLOCATOR: "pods hold GPUs that an allocator's scheduler chose, and the kubelet's ids do not say which",
    Unmatched.UNKNOWN_ID: _IDS_NOT_UNDERSTOOD,
    Unmatched.AMBIGUOUS: _IDS_NOT_UNDERSTOOD,
    Unmatched.UNNAMED: "the kubelet names devices in a way that no sample does",
}
# why a process on a GPU counts for no owner of the GPU
WITHOUT_OWNER: "Mapping[WithoutOwner, str]" = {
    "gone": "the process has ended",
    "unread": "nobody has looked which process it is: there are too many",
    "mps_server": "it is the server of MPS, which works for all of its clients: its memory is nobody's own",
    "no_container": "it runs in no container: somebody on the node uses the GPU without Kubernetes",
    "other_container": "its container is not the kubelet's: the GPU is used without a device plugin",
    "unknown_container": "it is in a pod, and neither /var/log/containers nor the pods say in which container",
    "not_assigned": "its container did not get this GPU from the kubelet: it is used without a device plugin",
    "unresolved": "its pod may hold this GPU: which of its containers holds what is not known",
    "unknown_instance": "its container has several instances of the GPU, and the driver does not say which one",
}
# why a device has no owner although nothing is wrong
NOBODY: Final = "the kubelet names no container that holds this device; it leaves out init containers, which may"


@dataclass(eq=False)
class Explainer:
    """The explanations for a state of owners and a page. Facts that all devices share are worked out once."""

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
        if match.reason == Unmatched.ALLOCATOR:
            return _of_token(match)
        if match.reason == Unmatched.MIG_UNRESOLVED:
            return self._unresolved(match.ref.mig if match.ref else "")
        if match.reason == Unmatched.CLAIM_UNRESOLVED:
            return _claim_unresolved(match, self.context)
        if match.reason == Unmatched.CONTRADICTED and match.ref is not None:
            return _contradicted(match.ref)
        if match.reason == Unmatched.NO_SAMPLE and match.key is not None and match.key.instance:
            return _NO_SAMPLE_OF_INSTANCE
        return _OF_UNMATCHED[match.reason]

    def _unresolved(self, mig: str) -> Trouble:
        """The reason why the inventory does not say which instance a MIG UUID is."""
        trouble = next((doubt.trouble for doubt in self.inventory.doubts if mig in doubt.leaves_out), None)
        if trouble is not None:
            return Trouble("", f"the inventory leaves this MIG instance out: {trouble.message}", trouble.remedy)
        if any("nvml" in gpu.sources for gpu in self.inventory.gpus):
            return _NVML_LACKS_IT
        if self.context.has_inventory_file:
            return _FILE_LACKS_IT
        if any(gpu.mig for gpu in self.inventory.gpus):
            return _SPECS_LACK_IT
        return _NO_INVENTORY

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
            return "not_prepared", _NOT_PREPARED
        if is_unfollowed_claim(assignment, self.context):
            return "dra_off", _CLAIMS_ARE_OFF
        if claim is not None and self._is_without_gpu(claim):
            return Unmatched.NO_GPU, _OF_UNMATCHED[Unmatched.NO_GPU]
        return "outside_resources", Trouble(
            "",
            f"resource {assignment.resource} is outside --resources ({', '.join(self.context.resources)})",
            f"if its devices are GPUs, add --resources {assignment.resource}",
        )

    def _is_without_gpu(self, claim: Claim) -> bool:
        """Whether CDI specs have all of a claim's devices, and give none of them a GPU's device node."""
        places = [self.inventory.places.get(name) for name in claim.cdi_names]
        return all(place is not None and not place.minor for place in places)

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
        if self.context.misses_pods:
            return "pods may hold devices by an allocator's word alone (--allocators.pods on), and no pod is known yet"
        why = what_hides_owners(self._reasons, device)
        if not why and self.owners.units:
            return "containers hold units of this node's GPUs, whose ids name no GPU"
        return why

    @cached_property
    def _reasons(self) -> set[str]:
        return {match.reason for match in self.owners.matches}

    @cached_property
    def _claims_are_off(self) -> bool:
        return any(is_unfollowed_claim(assignment, self.context) for assignment in self.context.outside)


def _unknown_minor(who_names: str, minor: str) -> Trouble:
    return Trouble(
        "",
        f"{who_names} /dev/nvidia{minor}, and nothing here says which GPU that is",
        "mount nothing over /proc/driver/nvidia, where the driver says it, or let NVML tell (--nvml.mode)",
    )


def _of_token(match: Match) -> Trouble:
    """The reason why a token has no device: no word counts, or the word names a device that the node lacks."""
    word = match.assignment.word
    if word is not None and word.trouble is not None:
        return word.trouble
    if word is not None and word.ref is not None:
        ref = word.ref
        if ref.minor and not ref.uuid:
            return _unknown_minor(f"{word.source} says that the container has", ref.minor)
        device = ref.uuid or ref.mig or ref.device or ref.index
        return Trouble(
            "",
            f"{word.source} says that the container has {device}, and this node has no such device",
            f"no owner is shown: look at the scheduler and the device plugin of {word.grant.allocator}",
        )
    return named(match.ref.allocator).trouble if match.ref else _OF_UNMATCHED[Unmatched.UNKNOWN_ID]


def of_look(match: Match) -> tuple[str, Trouble]:
    """The reason why an assignment holds nothing: as /debug/mapping names it, and in words."""
    if match.assignment.word is not None:
        return "reservation", _RESERVATION
    if match.assignment.claim is None:
        return "monitoring", _MONITORING
    return "admin_access", _ADMIN_ACCESS


def what_hides_owners(unmatched: Collection[str], device: Subject) -> str:
    """The text of those `unmatched` reasons (`Unmatched`) that may hide this device's owner; "" if none may."""
    for reason, why in HIDES_OWNERS.items():
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


def _claim_unresolved(match: Match, context: LookContext) -> Trouble:
    """The reason why nothing says which device a claim means."""
    if match.ref is not None and match.ref.minor:
        return _unknown_minor("the CDI spec of this claim's device names", match.ref.minor)
    claim = match.assignment.claim
    if context.slices_up is None or claim is None:
        return _NO_SLICES
    if claim.slice_name in context.slice_devices:
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
