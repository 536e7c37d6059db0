"""One look at a node: all that outputs are made from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from exporter.errors import Reason, Trouble
from exporter.model.accounts import Accounts
from exporter.model.devices import AddedLabels, Assignment, DeviceKey, Inventory, Owners, SliceDevice, SliceDeviceName
from exporter.model.pages import Attribute, JoinedPage, nobodys
from exporter.model.pods import Owner
from exporter.model.states import IDLE_BELOW

if TYPE_CHECKING:
    from exporter.model.cuda import CudaUses
    from exporter.model.host import DeviceFile, Host
    from exporter.model.measured import Measured

# how the kubelet's pod-resources socket is called in labels, logs and `Snapshot.health`, where it always is
KUBELET: Final = "kubelet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """How the last attempt at a source went. Before the first attempt `up` is None.

    `trouble` says why it failed or, where `up` is True, what is odd about a good answer (a kubelet that lists no
    pod).
    """

    up: bool | None = None
    trouble: Trouble | None = None
    duration_seconds: float | None = None
    last_success_at_seconds: float | None = None

    @property
    def reason(self) -> Reason | Literal[""]:
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
class Facts:
    """What explanations need beside the devices: the settings that decide, and what these settings leave out.

    `outside` are assignments of resources that `resources` (globs) leave out. `has_inventory_file` says that the user
    names an inventory's file. `label_problems` counts the labels of pods that hold devices by what became of them:
    `collision` (renamed) or `limit` (left out). `node_is_named`: the node's name was given, and is not just the host
    name. `follows_claims` is off with `--dra off`. `slice_devices` are the devices known from ResourceSlices.
    `slices_up` says whether the source of ResourceSlices answers; None where there is no such source.
    `exposes_processes`: the user wants command lines of processes to be shown. Below `idle_below` (0 to 1) a device is
    idle.
    """

    resources: tuple[str, ...] = ()
    outside: tuple[Assignment, ...] = ()
    incoming_wins: bool = False
    has_inventory_file: bool = False
    kubelet_version: str = ""
    label_problems: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    node_is_named: bool = True
    follows_claims: bool = True
    slice_devices: Mapping[SliceDeviceName, SliceDevice] = field(default_factory=lambda: MappingProxyType({}))
    slices_up: bool | None = None
    exposes_processes: bool = False
    idle_below: float = IDLE_BELOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One look at the node: what every output is made from.

    `joined` is None where every GPU source failed. `health` holds one entry a source, by its name; `page_sources` are
    the names of those of GPU samples.
    `assignments_age_seconds` is None as long as the kubelet has never answered; `read_at_seconds` is when the oldest of
    the pages was read, and `values_read_at_seconds` when dcgm-exporter had read its oldest values at the latest, in
    seconds since 1970. `held_since` is since when a device has been in the same hands (None: nobody's), of those that a
    look saw change them. `workloads` are names and kinds by namespace and pod, where they were
    asked for and are known. `pod_labels` are the uid (pod_uid) and labels (label_…) of pods that hold devices, by the
    same, where they are asked for. `attribute` says which labels the samples of a page gain, by family and subject: the
    very one that `joined` was made with. `accounts` is None where nobody keeps any, `measured` where it is
    not known what owners of shared GPUs use of them; `unmeasured` then says why, where somebody shares one.
    `host` is None before it was read. `device_files` are those of NVIDIA's driver, where a diagnosis
    asked for them and a driver is loaded.
    `cuda` is None where no probe runs.
    """

    node: str
    owners: Owners
    joined: JoinedPage | None
    health: Mapping[str, Health]
    assignments_age_seconds: float | None
    page_sources: tuple[str, ...] = ()
    facts: Facts = field(default_factory=Facts)
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
    host: "Host | None" = None
    device_files: "tuple[DeviceFile, ...] | None" = None
    attribute: Attribute = field(default=nobodys, compare=False, repr=False)
