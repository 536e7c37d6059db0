"""One look at a node: all that outputs are made from; and its devices, each once and in stable order."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from exporter.errors import Trouble
from exporter.model.accounts import Accounts
from exporter.model.devices import (
    NO_HEALTHS,
    AddedLabels,
    Assignment,
    DeviceHealths,
    DeviceKey,
    DeviceRef,
    Inventory,
    Owners,
    SliceDevices,
)
from exporter.model.health import NO_VERDICTS, DeviceVerdicts
from exporter.model.pages import Attribute, JoinedPage, Subject, gpus_among, in_order, merged, nobodys
from exporter.model.pods import Owner
from exporter.model.states import IDLE_BELOW

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUses
    from exporter.model.driver import DeviceFile, Host
    from exporter.model.kernel import DeviceEvent
    from exporter.model.measured import Measured

# how the kubelet's pod-resources socket is called in labels, logs and `Snapshot.health`, where it always is
KUBELET: Final = "kubelet"
PODS: Final = "pods"
CDI: Final = "cdi"
KERNEL_LOG: Final = "kernel-log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the last attempt at a source went (`up` None: none yet). `trouble`: why it failed or, if up, what is odd."""

    up: bool | None = None
    trouble: Trouble | None = None
    duration_seconds: float | None = None
    last_success_at_seconds: float | None = None

    @property
    def reason(self) -> str:
        """The trouble's reason; "" where there is none."""
        return self.trouble.reason if self.trouble else ""

    @property
    def message(self) -> str:
        """The trouble's message; "" where there is none."""
        return self.trouble.message if self.trouble else ""

    @property
    def remedy(self) -> str:
        """The trouble's remedy; "" where there is none."""
        return self.trouble.remedy if self.trouble else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookContext:
    """What explanations need beside the devices: the settings that decide, and what these settings leave out.

    `outside` are assignments of resources that `resources` (globs) leave out. `has_inventory_file`: the user names one.
    `label_problems` counts labels of pods that hold devices: `collision` (renamed) or `limit` (left out).
    `node_is_named`: the user gave the node's name, which is otherwise the host's. `follows_claims` is off with `--dra
    off`. `slice_devices` are the devices of ResourceSlices; `slices_up` says whether their source answers (None: there
    is none). `exposes_processes`: the user wants command lines of processes to be shown. Below `idle_below` (0 to 1) a
    device is idle. `names_owners` is off with `--labels.owners off`.
    """

    resources: tuple[str, ...] = ()
    outside: tuple[Assignment, ...] = ()
    incoming_wins: bool = False
    names_owners: bool = True
    has_inventory_file: bool = False
    kubelet_version: str = ""
    label_problems: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    node_is_named: bool = True
    follows_claims: bool = True
    slice_devices: SliceDevices = field(default_factory=lambda: MappingProxyType({}))
    slices_up: bool | None = None
    exposes_processes: bool = False
    idle_below: float = IDLE_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at the node: what every output is made from.

    `joined` is None where every GPU source failed. `health` is by source; `page_sources` name those of GPU samples.
    `assignments_age_seconds` is None until the kubelet has answered; `read_at_seconds` is when the oldest of the pages
    was read, and `values_read_at_seconds` when dcgm-exporter had read its oldest values at the latest, in seconds since
    1970. `held_since` says since when an owner (None: nobody) has held a device, if a look saw that change. `workloads`
    are names and kinds, and `pod_labels` the uid (pod_uid) and labels (label_…) of pods that hold devices, by namespace
    and pod, if they were asked for. `attribute`, with which `joined` was made, says which labels samples gain, by
    family and subject. `accounts` is None where nobody keeps any. `measured` is None where it is not known what owners
    of shared GPUs use; `unmeasured` then says why, if somebody shares one. `host` is None before it was read.
    `events` are the last of the kernel's log, the newest first; None where that is not read.
    `device_files` are those of NVIDIA's driver, if a diagnosis asked for them and a driver is loaded. `cuda` is None
    where no probe runs. `healths` say how devices are that containers hold, as far as the kubelet says it.
    `verdicts` say how all devices are, by all that speak of them, if they were asked for.
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
    held_since: Mapping[tuple[DeviceKey, Owner | None], float] = field(default_factory=lambda: MappingProxyType({}))
    workloads: Mapping[tuple[str, str], tuple[str, str]] = field(default_factory=lambda: MappingProxyType({}))
    pod_labels: Mapping[tuple[str, str], AddedLabels] = field(default_factory=lambda: MappingProxyType({}))
    inventory: Inventory = field(default_factory=Inventory)
    accounts: Accounts | None = None
    measured: "Measured | None" = None
    unmeasured: Trouble | None = None
    cuda: "CudaUses | None" = None
    healths: DeviceHealths = field(default_factory=lambda: NO_HEALTHS)
    verdicts: DeviceVerdicts = field(default_factory=lambda: NO_VERDICTS)
    events: "tuple[DeviceEvent, ...] | None" = None
    host: "Host | None" = None
    device_files: "tuple[DeviceFile, ...] | None" = None
    attribute: Attribute = field(default=nobodys, compare=False, repr=False)

    @property
    def is_page_away(self) -> bool:
        """Whether a source of pages failed, one or all of them: the devices on its page were not seen."""
        return self.joined is None or any(
            (health := self.health.get(source)) is not None and health.up is False for source in self.page_sources
        )


def seen_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device that samples speak of, by GPU index, then by MIG instance."""
    return sorted(_seen(snapshot).values(), key=in_order)


def all_devices(snapshot: Snapshot) -> list[Subject]:
    """The same, and those that only the kubelet names."""
    return sorted(_seen_or_held(snapshot).values(), key=in_order)


def known_devices(snapshot: Snapshot) -> list[Subject]:
    """Every device once: those of samples, of the kubelet and of the inventory.

    A device whose name by the kubelet no sample has is among those of the samples already.
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
        # rows of NvLinks have fewer labels of their GPU than other rows
        devices[subject.key] = merged(devices.get(subject.key), subject)
    return devices


def _seen_or_held(snapshot: Snapshot) -> dict[DeviceKey, Subject]:
    devices = _seen(snapshot)
    for match in snapshot.owners.matches:
        if match.key is not None and match.ref is not None and match.key not in devices:
            devices[match.key] = _from_id(match.key, match.ref)
    return devices


def _add_inventory(devices: dict[DeviceKey, Subject], inventory: Inventory) -> None:
    uuids = {subject.uuid for subject in devices.values()}
    # a GPU whose samples have no UUID goes by its name
    numbers = {subject.index for subject in devices.values() if subject.index and not subject.uuid}
    # the driver numbers no GPU, but the samples of a GPU's instances do
    number_of = {subject.uuid: subject.index for subject in devices.values() if subject.index}
    for gpu in inventory.gpus:
        if gpu.index in numbers:
            continue
        bare = gpu.uuid.removeprefix("GPU-")
        uuid = bare if bare in uuids else gpu.uuid
        index = gpu.index or number_of.get(uuid, "")
        # an instance whose samples carry its own UUID goes by that
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
