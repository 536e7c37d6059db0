"""The snapshot of one look at a node, from which all outputs are made, and the devices in it.

Every list of devices has each device once, in stable order.

Tests: tests/outputs/test_otlp.py.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypedDict

from exporter.errors import Trouble
from exporter.model.accounts import Accounts
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import (
    AddedLabels,
    Assignment,
    DeviceHealths,
    DeviceKey,
    Inventory,
    Owners,
    Since,
    SliceDevices,
)
from exporter.model.hangs import NO_HANGS, Hangs
from exporter.model.health import DeviceVerdicts
from exporter.model.nothing import nothing
from exporter.model.pages import Attribute, JoinedPage, Rows, Subject, gpus_among, in_order, merged, nobodys
from exporter.model.pods import PodName
from exporter.model.states import IDLE_BELOW

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUses
    from exporter.model.driver import DeviceFile, Host
    from exporter.model.kernel import DeviceEvent
    from exporter.model.link_events import LinkEvent
    from exporter.model.measured import Measured
    from exporter.model.page_generation import PageGeneration

# The name of the kubelet's pod-resources socket in labels, logs and `Snapshot.health`, which always has it.
KUBELET: Final = "kubelet"
PODS: Final = "pods"
CDI: Final = "cdi"
KERNEL_LOG: Final = "kernel-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The outcome of the last attempt at a source (`up` None: none yet).

    `trouble`: why it failed or, if up, what is odd.
    """

    up: bool | None = None
    trouble: Trouble | None = None
    duration_seconds: float | None = None
    last_success_at_seconds: float | None = None

    @property
    def reason(self) -> str:
        """The trouble's reason; "" if there is none."""
        return self.trouble.reason if self.trouble else ""

    @property
    def message(self) -> str:
        """The trouble's message; "" if there is none."""
        return self.trouble.message if self.trouble else ""

    @property
    def remedy(self) -> str:
        """The trouble's remedy; "" if there is none."""
        return self.trouble.remedy if self.trouble else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookContext:
    """Facts that explanations need beside the devices: the settings that decide, and what these settings leave out.

    Attributes:
        resources: globs of the resources that count.
        outside: the assignments of resources that no glob in `resources` fits.
        names_owners: off with `--labels.owners off`.
        has_inventory_file: the user names an inventory file.
        label_problems: the number of labels of pods with devices that were renamed (`collision`) or left out (`limit`).
        node_is_named: the user gave the node's name, which is otherwise the host's.
        follows_claims: off with `--dra off`.
        slice_devices: the devices of ResourceSlices.
        slices_up: whether the source of ResourceSlices answers; None if there is no such source.
        exposes_processes: the user wants outputs to show command lines of processes.
        idle_below: a device whose activity (0 to 1) is lower is idle.
        misses_pods: pods may hold devices of which the kubelet lists nothing (`--allocators.pods on`), and no pod is
            known yet.
    """

    resources: tuple[str, ...] = ()
    outside: tuple[Assignment, ...] = ()
    incoming_wins: bool = False
    names_owners: bool = True
    has_inventory_file: bool = False
    kubelet_version: str = ""
    label_problems: Mapping[str, int] = field(default_factory=nothing)
    node_is_named: bool = True
    follows_claims: bool = True
    slice_devices: SliceDevices = field(default_factory=nothing)
    slices_up: bool | None = None
    exposes_processes: bool = False
    idle_below: float = IDLE_BELOW
    misses_pods: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The result of one look at the node, from which every output is made.

    Attributes:
        joined: the page that goes out; None if every GPU source failed.
        health: the health of each source, by its name.
        assignments_age_seconds: None until the kubelet has answered.
        page_sources: the names of the sources of GPU samples, which are keys of `health`.
        read_at_seconds: when the exporter read the oldest of the pages, in seconds since 1970.
        values_read_at_seconds: the latest moment at which dcgm-exporter can have read its oldest values, in seconds
            since 1970.
        held_since: since when an owner (None: nobody) has held a device, if a look saw that change.
        workloads: the name and kind of each pod's workload, by namespace and pod, if the settings ask for them.
        pod_labels: by namespace and pod, of pods that hold devices and are known: the uid (pod_uid) and labels
            (label_…) that the settings ask for, and the queue.
        accounts: the accounts; None if the program keeps none.
        hangs: the jobs that seem to hang, as the accounts' looks have found them.
        measured: the owners' measured use of shared GPUs; None if it is not known.
        unmeasured: the reason why `measured` is None, if containers share a GPU.
        cuda: the CUDA probe's counts; None if no probe runs.
        healths: the kubelet's reports on the devices that containers hold, as far as there are any.
        verdicts: the health of all devices by all sources, if the look was asked for it.
        link_events: what happened to links of GPUs, the newest first, if the look was asked for verdicts.
        events: the last errors in the kernel's log, the newest first; None if the log is not read.
        host: the driver's version and the kernel; None before they were read.
        device_files: the files of NVIDIA's driver, if a diagnosis asked for them and a driver is loaded.
        page_generations: the generations of DCGM that each source's page can be of; None unless a diagnosis
            asked for them.
        attribute: the function that made `joined`: it says which labels samples gain, by family and subject.
    """

    node: str
    owners: Owners
    joined: JoinedPage | None
    health: Mapping[str, Health]
    assignments_age_seconds: float | None
    page_sources: tuple[str, ...] = ()
    context: LookContext = field(default_factory=LookContext)
    read_at_seconds: float | None = None
    values_read_at_seconds: float | None = None
    held_since: Since = field(default_factory=nothing)
    workloads: Mapping[PodName, tuple[str, str]] = field(default_factory=nothing)
    pod_labels: Mapping[PodName, AddedLabels] = field(default_factory=nothing)
    inventory: Inventory = field(default_factory=Inventory)
    accounts: Accounts | None = None
    hangs: Hangs = NO_HANGS
    measured: "Measured | None" = None
    unmeasured: Trouble | None = None
    cuda: "CudaUses | None" = None
    healths: DeviceHealths = field(default_factory=nothing)
    verdicts: DeviceVerdicts = field(default_factory=nothing)
    link_events: "tuple[LinkEvent, ...]" = ()
    events: "tuple[DeviceEvent, ...] | None" = None
    host: "Host | None" = None
    device_files: "tuple[DeviceFile, ...] | None" = None
    page_generations: "Mapping[str, PageGeneration] | None" = None
    attribute: Attribute = field(default=nobodys, compare=False, repr=False)

    @property
    def is_page_away(self) -> bool:
        """Whether at least one source of pages failed, so that the look did not see the devices on its page."""
        healths = (self.health[source] for source in self.page_sources if source in self.health)
        return self.joined is None or any(health.up is False for health in healths)


class LookFacts(TypedDict, total=False):
    """The fields of a look that the parts of a node add to the joined page; they are those of `Snapshot`."""

    workloads: Mapping[PodName, tuple[str, str]]
    accounts: Accounts | None
    hangs: Hangs
    measured: "Measured | None"
    unmeasured: Trouble | None
    cuda: "CudaUses | None"
    healths: DeviceHealths
    verdicts: DeviceVerdicts
    events: "tuple[DeviceEvent, ...] | None"
    link_events: "tuple[LinkEvent, ...]"
    host: "Host | None"
    device_files: "tuple[DeviceFile, ...] | None"
    page_generations: "Mapping[str, PageGeneration]"


def attributed(snapshot: Snapshot, subjects: Sequence[Subject], most: int) -> Iterator[Iterable[tuple[Subject, Rows]]]:
    """The rows that samples of these subjects would gain, for `most` subjects at a time, so that other tasks may run.

    If rows came with owners, all subjects are asked for at once, since only then is it known which owner is named
    several times.
    """
    if any(subject.came_with for subject in subjects):
        most = len(subjects)
    for start in range(0, len(subjects), most):
        some = subjects[start : start + most]
        yield zip(some, snapshot.attribute([(b"", subject) for subject in some]), strict=True)


def seen_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples name, by GPU index, then by MIG instance."""
    return sorted(_seen(snapshot).values(), key=in_order)


def all_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples or the kubelet name, in the same order."""
    return sorted(_seen_or_held(snapshot).values(), key=in_order)


def known_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples, the kubelet or the inventory name, once each.

    If the kubelet has a name that no sample has (`Owners.unnamed`), its device is already among those of the samples.
    """
    unnamed = snapshot.owners.unnamed
    devices = {key: device for key, device in _seen_or_held(snapshot).items() if key not in unnamed}
    if snapshot.inventory.gpus:
        _add_inventory(devices, snapshot.inventory)
    return sorted(devices.values(), key=in_order)


def _seen(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    devices: dict[DeviceKey, Subject] = {}
    subjects = snapshot.joined.subjects if snapshot.joined else ()
    for subject in gpus_among(subjects, snapshot.owners, snapshot.inventory):
        # samples of NVLinks have fewer labels of their GPU than other samples
        devices[subject.key] = merged(devices.get(subject.key), subject)
    return devices


def _seen_or_held(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    devices = _seen(snapshot)
    for match in snapshot.owners.matches:
        if match.key is not None and match.ref is not None and match.key not in devices:
            devices[match.key] = _from_id(match.key, match.ref)
    return devices


def _add_inventory(devices: dict[DeviceKey, Subject], inventory: Inventory) -> None:
    """Add the inventory's GPUs and instances, and its facts about devices that are there already."""
    uuids = {subject.uuid for subject in devices.values()}
    # a GPU whose samples have no UUID is known by its number
    numbers = {subject.index for subject in devices.values() if subject.index and not subject.uuid}
    # the driver's inventory has no numbers of GPUs, but the samples of a GPU's instances have its number
    number_of = {subject.uuid: subject.index for subject in devices.values() if subject.index}
    for gpu in inventory.gpus:
        if gpu.index in numbers:
            continue
        uuid = gpu.uuid_among(uuids)
        index = gpu.index or number_of.get(uuid, "")
        # an instance whose samples have its own UUID is already there under that UUID
        instances = (mig for mig in gpu.mig if mig.uuid not in uuids)
        whole = Subject(uuid=uuid, index=index, serial=gpu.serial)
        parts = (replace(whole, instance=mig.instance_id, profile=mig.profile) for mig in instances)
        for subject in (whole, *parts):
            devices[subject.key] = merged(devices.get(subject.key), subject)


def _from_id(key: DeviceKey, ref: DeviceRef) -> Subject:
    named = key.uuid in (ref.device, ref.index)
    return Subject(
        uuid="" if named else key.uuid, instance=key.instance, index=ref.index, device=ref.device, profile=ref.profile
    )
