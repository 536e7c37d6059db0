"""The findings of `doctor` about a look at a node. Pure.

A source itself says why it fails, and what to do about it. `ownership.explain` says why a device has no owner.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from exporter.dividing.instances import USUAL_SLICES, slices_of_model
from exporter.errors import Trouble
from exporter.model.device_row import users_in_words
from exporter.model.devices import Assignment, DeviceKey, Owners, bare
from exporter.model.driver import DeviceFile, Refusal
from exporter.model.hangs import HANG_REMEDIES, SUSPECTED
from exporter.model.kernel import pci_address
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import CDI, KERNEL_LOG, KUBELET, PODS, Health, Snapshot
from exporter.outputs.allocator_findings import of_allocators
from exporter.outputs.device_rows import explainer, users_of_devices
from exporter.outputs.diagnosis import Diagnosis, Finding, Level, fine, problem, warning
from exporter.outputs.page_findings import of_generations, of_joined
from exporter.outputs.suspicions import in_words, remedy_of, suspicions_of
from exporter.ownership.device_ids import DRA_DRIVERS
from exporter.ownership.explain import UNITS_NAME_NO_GPU, Explainer, is_unfollowed_claim, of_look
from exporter.ownership.owners import WITHOUT_SAMPLES, Unmatched

# Ids that this program cannot resolve; dcgm-exporter may have attributed their devices on the page already.
_UNRESOLVED = frozenset(
    {Unmatched.MIG_UNRESOLVED, Unmatched.UNKNOWN_ID, Unmatched.CLAIM_UNRESOLVED, Unmatched.AMBIGUOUS, Unmatched.UNNAMED}
)
# of why assignments are left out (`Explainer.outside`); what is not here is fine
_LEFT_OUT = {"dra_off": Level.PROBLEM, "outside_resources": Level.WARNING}
_RUNTIME = "give it NVIDIA's runtime (runtimeClassName: nvidia; with Docker --gpus all, or CDI)"
_WHOLE_CLAIM = Trouble(
    "",
    "several containers are shown as sharing its devices: the kubelet names all devices of a claim for each of them",
    "if each asked for a request of its own, let the exporter read pods (--labels.pod-uid on): their status says which"
    " container got which device",
)
_NO_SPECS = Trouble(
    "",
    "NVIDIA's DRA driver writes a CDI spec for each claim, and in /etc/cdi and /var/run/cdi there is none here",
    "mount /var/run/cdi read-only (or there the folder that the driver's chart names), and leave --inventory at auto:"
    " then claims need neither a token nor the Kubernetes API",
)
_UNHEARD = Trouble(
    "",
    "has not answered yet",
    "look again in a minute; if it stays so, something on the way drops packets: can this container reach that address"
    " (network policies, proxies, firewalls)?",
)
# by what keeps the exporter from opening a device file
_REFUSALS: Mapping[Refusal, Trouble] = {
    "mode": Trouble(
        "",
        "the mode of the file does not let the exporter open it",
        "run the exporter as root, or in the group of the file (ls -l shows it)",
    ),
    "security_module": Trouble(
        "",
        "the mode of the file lets the exporter open it, and a security module such as SELinux does not",
        "look at the node's audit log (ausearch -m avc), and let the exporter use the driver's devices",
    ),
    "cgroup": Trouble(
        "",
        "the mode of the file lets the exporter open it, and the cgroup's rules for devices do not",
        f"in a container, {_RUNTIME}; for a systemd unit, run pod-gpu-metrics-exporter device-access --unit NAME",
    ),
}
_SUSPICION_SECONDS = 86_400.0  # /events keeps a suspicion longer
_BY_NVML = frozenset({"nvml-lost", "reset-required", "nvml"})  # reasons of verdicts
_STRANGER_REMEDY = (
    "let it ask the kubelet for the GPU, or stop it: containers that are privileged, or have NVIDIA_VISIBLE_DEVICES=all"
    " or the driver's device files, see every GPU of the node"
)


def diagnose(snapshot: Snapshot, doubts: Iterable[Trouble], *, asks_nvml: bool) -> Diagnosis:
    """All findings worth telling, the sources first. `doubts` are the doubts about the settings."""
    return Diagnosis(
        summary=summary(snapshot),
        findings=(
            *(Finding(Level.WARNING, "settings", doubt) for doubt in doubts),
            *of_kubelet(snapshot),
            *of_pages(snapshot),
            *of_other_sources(snapshot),
            *of_device_files(snapshot.device_files, asks_nvml=asks_nvml),
            *of_attribution(snapshot),
            *of_allocators(snapshot),
            *of_devices(snapshot),
            *of_strangers(snapshot),
            *of_hangs(snapshot),
            *of_suspicions(snapshot),
        ),
    )


def summary(snapshot: Snapshot) -> str:
    """A line with the number of held devices whose owner is on a sample. A share counts as a device."""
    if snapshot.assignments_age_seconds is None:
        return "the kubelet has not said which devices containers hold"
    by_page = _attributed_by_page(snapshot)
    held: dict[tuple[str, str], bool] = {}
    for match in snapshot.owners.matches:
        if match.reason in WITHOUT_SAMPLES:
            continue
        is_matched = not match.reason or match.assignment in by_page
        device = _id_of(match.assignment)
        held[device] = held.get(device, True) and is_matched
    for assignment in snapshot.context.outside:
        if is_unfollowed_claim(assignment, snapshot.context):
            held[_id_of(assignment)] = False
    if not held and snapshot.owners.units:
        return "no container holds a device by its name; some hold units of GPUs"
    if not held and snapshot.owners.matches:
        return "no container holds a device that has samples; some hold others"
    if not held:
        return "no container holds a device"
    return f"{sum(held.values())} of {len(held)} devices attributed"


def of_kubelet(snapshot: Snapshot) -> Iterator[Finding]:
    """The kubelet's socket: without it nothing has an owner."""
    health = snapshot.health[KUBELET]
    if not health.up:
        yield Finding(Level.PROBLEM, KUBELET, health.trouble or _UNHEARD)
        return
    version = snapshot.context.kubelet_version
    yield fine(KUBELET, f"answers ({version}); {_handed_out(snapshot.owners)} device ids are handed out")
    if health.trouble:
        yield Finding(Level.WARNING, KUBELET, health.trouble)
    if version == "v1alpha1":
        yield warning(
            KUBELET,
            "serves only v1alpha1 of its pod-resources API: it is older than Kubernetes 1.20",
            "the main job works with it; devices of DRA claims are not in it: upgrade the node for those",
        )


def _handed_out(owners: Owners) -> int:
    """The number of ids that the kubelet has given to containers, also if they only look at a device."""
    given = (match.assignment for match in (*owners.matches, *owners.looks))
    return sum(assignment.count for assignment in given if not (assignment.word and assignment.word.is_unlisted))


def of_pages(snapshot: Snapshot) -> Iterator[Finding]:
    """The sources of GPU samples, and the page that is made of them."""
    joined = snapshot.joined
    for name in snapshot.page_sources:
        yield from _of_source(snapshot, name, Level.PROBLEM if joined is None else Level.WARNING)
    yield from of_generations(snapshot)
    yield from of_joined(snapshot)


def of_other_sources(snapshot: Snapshot) -> Iterator[Finding]:
    """The sources beside the main job: NVML, the inventory, pods, ResourceSlices."""
    reasons = {match.reason for match in snapshot.owners.matches if match.assignment.resource in DRA_DRIVERS}
    if reasons and CDI not in snapshot.health:
        # only a hint, if ResourceSlices resolve all claims
        level = Level.WARNING if Unmatched.CLAIM_UNRESOLVED in reasons else Level.OK
        yield Finding(level, CDI, _NO_SPECS)
    for name in snapshot.health:
        if name != KUBELET and name not in snapshot.page_sources:
            yield from _of_source(snapshot, name, Level.WARNING)
    yield from _of_kernel_log(snapshot)
    why = snapshot.unmeasured
    if why is not None and all(why != health.trouble for health in snapshot.health.values()):
        # The user has not asked for this source, so its failure is no warning, but a hint.
        says = f"the pods' use of GPUs is not all measured; rows of shared GPUs follow --sharing: {why.message}"
        yield fine("measured use", says, why.remedy)


def _of_kernel_log(snapshot: Snapshot) -> Iterator[Finding]:
    """GPUs without a known PCI address. The kernel's log names a GPU only by its address."""
    if snapshot.events is None or snapshot.joined is None:
        return
    devices = [subject for subject in snapshot.joined.subjects if subject.is_device]
    gpus = {device.uuid for device in devices if not device.uuid.startswith("MIG-")}
    unplaced = gpus - {device.uuid for device in devices if pci_address(device.address)}
    for gpu in snapshot.inventory.gpus:
        if gpu.address:
            unplaced.difference_update(gpu.names)
    if unplaced:
        some = "a GPU" if len(unplaced) == 1 else f"{len(unplaced)} GPUs"
        yield warning(
            KERNEL_LOG,
            f"the log names a GPU by its PCI address, and nobody says that of {some}: their errors have no GPU and no"
            " holder",
            "let the exporter see /proc/driver/nvidia (NVIDIA's runtime, or its folder gpus mounted there), or have"
            " dcgm-exporter's page carry the label pci_bus_id",
        )


def _is_of_a_device(snapshot: Snapshot, health: Health) -> bool:
    """Whether NVML's trouble is a lost GPU: then the finding on the device tells it, with what to do."""
    if not health.up:
        return False
    for key, verdict in snapshot.verdicts.items():
        is_lost = any(reason.reason in _BY_NVML for reason in verdict.reasons)
        if is_lost and f"({key.uuid})" in health.message:
            return True
    return False


def _of_source(snapshot: Snapshot, name: str, is_down: Level) -> Iterator[Finding]:
    """Whether a source answers, and its trouble. A source that has not answered yet has no trouble: doctor words it."""
    health = snapshot.health[name]
    if not health.up:
        yield Finding(is_down, name, health.trouble or _UNHEARD)
        return
    yield fine(name, "answers")
    if health.trouble and not _is_of_a_device(snapshot, health):
        yield Finding(Level.WARNING, name, health.trouble)


def of_device_files(files: Sequence[DeviceFile] | None, *, asks_nvml: bool) -> Iterator[Finding]:
    """The findings about the driver's device files, which NVML opens. `files` is None if no driver is loaded."""
    if files is None:
        return
    if not files:
        # The main job needs none of these files, so this is no warning, but a hint.
        says = "NVIDIA's driver is loaded, and none of its device files is here: the exporter cannot ask NVML"
        yield fine("device files", says, f"in a container, {_RUNTIME}")
        return
    allowed = [file for file in files if not file.refusal]
    if allowed:
        yield fine("device files", f"the exporter may open {len(allowed)} of NVIDIA's {len(files)}")
    level = Level.WARNING if asks_nvml else Level.OK
    yield from grouped(Finding(level, file.path, _REFUSALS[file.refusal]) for file in files if file.refusal)


def of_attribution(snapshot: Snapshot) -> Iterator[Finding]:
    """Findings that concern all devices, or many."""
    owners = snapshot.owners
    if snapshot.joined is None:
        return
    words = explainer(snapshot)
    if any(match.reason == Unmatched.OTHER_NODE for match in owners.matches):
        yield Finding(Level.PROBLEM, "page", words.other_node)
    for doubt in snapshot.inventory.doubts:
        yield Finding(Level.WARNING, "inventory", doubt.trouble)
    yield from _of_unknown_slices(snapshot, snapshot.joined.subjects)
    reasons = {words.outside(assignment)[0] for assignment in snapshot.context.outside}
    is_all_outside = "outside_resources" in reasons and "dra_off" not in reasons
    if is_all_outside and not (owners.matches or owners.units or owners.looks):
        yield problem("attribution", "all that the kubelet handed out is outside --resources", "see each of them below")
    hidden = _with_other_owners(owners, snapshot.joined.subjects)
    if hidden and snapshot.context.incoming_wins:
        yield warning(
            "attribution",
            f"dcgm-exporter attributes already, and --labels.conflict keep hides the kubelet's word for"
            f" {len(hidden)} devices",
            "use --labels.conflict replace, or start dcgm-exporter without -k (DCGM_EXPORTER_KUBERNETES)",
        )


def _with_other_owners(owners: Owners, subjects: Iterable[Subject]) -> set[DeviceKey]:
    """The devices whose samples came with an owner that is none of their holders."""
    devices: set[DeviceKey] = set()
    for subject in subjects:
        holders = [holder.owner for holder in owners.of(subject.key)]
        if holders and subject.came_with and subject.came_with not in holders:
            devices.add(subject.key)
    return devices


def _of_unknown_slices(snapshot: Snapshot, subjects: Iterable[Subject]) -> Iterator[Finding]:
    """The models of cut GPUs whose number of compute slices is unknown."""
    by_nvml = {bare(gpu.uuid) for gpu in snapshot.inventory.gpus if gpu.slices}
    instances = [subject for subject in subjects if subject.instance]
    models = {instance.model for instance in instances if bare(instance.uuid) not in by_nvml}
    for model in sorted(models):
        if slices_of_model(model) is not None:
            continue
        yield warning(
            "accounts",
            f"the number of compute slices of the model {model!r} is not known: its MIG instances count as parts of"
            f" {USUAL_SLICES}",
            "let the exporter ask NVML (--nvml.mode), which knows it",
        )


def of_devices(snapshot: Snapshot) -> tuple[Finding, ...]:
    """One finding for each cause: devices with the same cause are named together."""
    words = explainer(snapshot)
    held = (*_matched(snapshot, words), *_units(snapshot), *_not_healthy(snapshot), *_of_whole_claims(snapshot))
    looks = (Finding(Level.OK, _name_of(look.assignment), of_look(look)[1]) for look in snapshot.owners.looks)
    return grouped((*held, *looks, *_left_out(snapshot, words)))


def _matched(snapshot: Snapshot, words: Explainer) -> Iterator[Finding]:
    by_page = _attributed_by_page(snapshot)
    for match in snapshot.owners.matches:
        name = _name_of(match.assignment)
        why = words.assigned(match)
        if not match.reason and match.key is not None:
            yield fine(name, f"{_device(match.key)}, {match.samples} samples")
        elif match.reason in WITHOUT_SAMPLES and why:
            yield Finding(Level.OK, name, why)
        elif match.assignment in by_page:
            yield fine(name, "this id is not understood, but the page itself names the container, and that is kept")
        # without a page, or with another node's page, another finding names that cause
        elif snapshot.joined is not None and match.reason != Unmatched.OTHER_NODE and why:
            yield Finding(Level.PROBLEM, name, why)


def _units(snapshot: Snapshot) -> Iterator[Finding]:
    """Containers that hold units. Nothing is wrong if their processes show which GPU they use."""
    for held in snapshot.owners.units:
        name = f"{held.units} of {held.resource} ({held.owner.name})"
        if snapshot.measured is None:
            yield Finding(Level.WARNING, name, UNITS_NAME_NO_GPU)
        else:
            yield fine(name, f"{UNITS_NAME_NO_GPU.message}; NVML tells which one it uses")


def _not_healthy(snapshot: Snapshot) -> Iterator[Finding]:
    """The findings about devices that are not `ok`. Findings on the sources name devices that no source reads."""
    for device, verdict in snapshot.verdicts.items():
        name = _device(device)
        holders = sorted({holder.owner.name for holder in snapshot.owners.of(device)})
        if holders:
            number = f"GPU {verdict.gpu} of " if verdict.gpu else ""
            name += f" ({number}{', '.join(holders)})"
        for reason in verdict.reasons:
            if reason.reason != "unread":
                yield warning(name, f"this device is {reason.verdict}: {reason.message}", reason.remedy)
        for advice in verdict.advice:
            yield fine(name, advice.message, advice.remedy)


def _of_whole_claims(snapshot: Snapshot) -> Iterator[Finding]:
    """Claims with several devices, if by the kubelet's word several containers of a pod hold all of them."""
    health = snapshot.health.get(PODS)
    if health is not None and health.up:
        return
    held: dict[tuple[str, str, str], set[tuple[str, str]]] = defaultdict(set)
    for match in snapshot.owners.matches:
        owner = match.assignment.owner
        claim = match.assignment.claim
        if claim is not None:
            held[owner.namespace, owner.pod, claim.name].add((owner.container, claim.device_id))
    for (namespace, pod, name), pairs in sorted(held.items()):
        containers = {container for container, _ in pairs}
        devices = {device for _, device in pairs}
        if len(containers) > 1 and len(devices) > 1:
            yield Finding(Level.WARNING, f"claim {name} ({namespace}/{pod})", _WHOLE_CLAIM)


def _left_out(snapshot: Snapshot, words: Explainer) -> Iterator[Finding]:
    for assignment in snapshot.context.outside:
        reason, why = words.outside(assignment)
        yield Finding(_LEFT_OUT.get(reason, Level.OK), _name_of(assignment), why)


def of_strangers(snapshot: Snapshot) -> tuple[Finding, ...]:
    """The users of devices who do not hold them; no warning if their use is next to nothing."""
    idle_below = snapshot.context.idle_below
    return grouped(
        Finding(
            Level.WARNING if user.is_at_work(idle_below) else Level.OK,
            _device(key),
            Trouble("", users_in_words([user]), _STRANGER_REMEDY),
        )
        for key, users in sorted(users_of_devices(snapshot).items())
        for user in users
    )


def _attributed_by_page(snapshot: Snapshot) -> frozenset[Assignment]:
    """The assignments that this program cannot resolve, but whose owner the page itself names.

    They count as attributed if the page names that owner on at least as many devices as are unresolved.
    """
    unresolved = defaultdict[Owner, set[Assignment]](set)
    for match in snapshot.owners.matches:
        if match.reason in _UNRESOLVED:
            unresolved[match.assignment.owner].add(match.assignment)
    if not snapshot.joined:
        return frozenset()
    unheld = [subject for subject in snapshot.joined.subjects if not snapshot.owners.of(subject.key)]
    named = Counter(owner for owner, _ in {(subject.came_with, subject.key) for subject in unheld})
    by_page = (held for owner, held in unresolved.items() if named[owner] >= len(held))
    return frozenset().union(*by_page)


def _id_of(assignment: Assignment) -> tuple[str, str]:
    return assignment.resource, assignment.device_id


def _device(key: DeviceKey) -> str:
    return f"{key.uuid} instance {key.instance}" if key.instance else key.uuid


def _name_of(assignment: Assignment) -> str:
    holder = assignment.owner.name
    claim = assignment.claim
    if claim is not None and not claim.driver:
        return f"claim {claim.name} ({holder})"
    return f"{assignment.device_id} ({assignment.resource}, {holder})"


def grouped(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings about single devices. Findings with the same text become one, in the place of the first."""
    same: dict[tuple[Level, Trouble], list[Finding]] = {}
    for finding in findings:
        same.setdefault((finding.level, finding.trouble), []).append(finding)
    return tuple(map(_one_finding, same.values()))


def _one_finding(alike: Sequence[Finding]) -> Finding:
    first = alike[0]
    if len(alike) == 1:
        return first
    return replace(first, about=f"{len(alike)} devices", devices=tuple(finding.about for finding in alike))


def of_hangs(snapshot: Snapshot) -> Iterator[Finding]:
    """The jobs that seem to hang. Their metrics are all right, so it is no problem of the main job."""
    for hang in snapshot.hangs.suspected:
        for holder in hang.holders:
            yield warning(holder.name, f"{SUSPECTED}: {hang.message}", HANG_REMEDIES[hang.reason])


def of_suspicions(snapshot: Snapshot) -> Iterator[Finding]:
    """The ends of the last day that may have been for lack of GPU memory; of each container the newest."""
    named = set[str]()
    now = snapshot.read_at_seconds
    for suspected in suspicions_of(snapshot):
        name = suspected.owner.name
        is_old = now is not None and now - suspected.ended_at_seconds > _SUSPICION_SECONDS
        if name not in named and not is_old:
            named.add(name)
            yield warning(name, in_words(suspected), remedy_of(suspected))
