"""Looks at a node for tests of accounting: a page as text, who holds which ids, and the ledger that notes them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from exporter.accounts.ledger import Ledger, Rules
from exporter.accounts.memory_looks import Ends
from exporter.accounts.stretches import SmNs
from exporter.exposition.families import render
from exporter.exposition.join import Joiner
from exporter.model.accounts import Account
from exporter.model.cuda import CudaUses
from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.grants import Grant
from exporter.model.measured import Measured, Use
from exporter.model.pages import Subject
from exporter.model.pods import Owner
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs.families.accounts import FAMILIES
from exporter.outputs.families.family import filled
from exporter.outputs.output import Look
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from tests.support.ledgers import note
from tests.support.owners import build_owners

SECOND = 1_000_000_000
GPU = "GPU-{:08d}-1111-2222-3333-444455556666".format
UP, DOWN = Health(up=True), Health(up=False)
OTHER = {False: UP, True: DOWN}
# pod (its namespace and container are made of the name) → resource and device ids
Held = Mapping[str, Sequence[tuple[str, str]]]


def owner(pod: str) -> Owner:
    return Owner(namespace=f"ns-{pod}", pod=pod, container="main")


def kernels(pods: Mapping[str, int], gpu: int = 0, instance: str = "") -> SmNs:
    """For how long kernels of a device ran, by pod ("" for processes of nobody)."""
    return {DeviceKey(uuid=GPU(gpu), instance=instance): {owner(pod) if pod else None: ns for pod, ns in pods.items()}}


def row(family: str, value: str, gpu: int = 0, instance: str = "", profile: str = "", **labels: str) -> str:
    """A line of dcgm-exporter's."""
    mig = f',GPU_I_PROFILE="{profile}",GPU_I_ID="{instance}"' if instance else ""
    more = "".join(f',{name}="{text}"' for name, text in labels.items() if name != "model")
    model = labels.get("model", "NVIDIA H100 80GB HBM3")
    return f'{family}{{gpu="{gpu}",UUID="{GPU(gpu)}",device="nvidia{gpu}",modelName="{model}"{mig}{more}}} {value}\n'


def energy(value: str, gpu: int = 0, instance: str = "", profile: str = "1g.10gb") -> str:
    return row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value, gpu, instance, profile)


@dataclass
class Looks:
    """Looks of a pulse: each at its moment (seconds), of a page and of what pods hold.

    `grants` are what an allocator says of each pod's part of its device, by pod.
    """

    rules: Rules = field(default_factory=Rules)
    ledger: Ledger = field(default_factory=Ledger)
    mig: Mapping[str, tuple[int, str, str]] = field(default_factory=dict)  # MIG UUID → GPU, instance, profile
    slices: int | None = None  # of each GPU, by NVML
    offered: Mapping[tuple[str, DeviceKey], int] = field(default_factory=dict)
    policy: LabelPolicy = field(default_factory=LabelPolicy)
    grants: Mapping[str, Grant] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.joiner = Joiner(
            read_subject=self.policy.read_subject, is_owner_label=self.policy.is_owner_label, wanted=lambda _: True
        )
        # both are kept as the node role keeps them: what did not change is not worked out anew
        self._attribution = Attribution(Owners(), self.policy)
        self._owners: tuple[object, Owners] = (None, Owners())

    def snapshot(
        self,
        page: str | None,
        held: Held | None = None,
        *,
        kubelet: bool = True,
        one_page_fails: bool = False,
        uids: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        workloads: Mapping[str, str] | None = None,
        sm_ns: SmNs | None = None,
        uses: Mapping[str, float] | None = None,
        cuda: CudaUses | None = None,
    ) -> Snapshot:
        """`uses` is what each pod's processes use of the first GPU's memory, in MiB; `cuda` is the probe's word.

        `uids`, `labels` (of one name) and `workloads` (Deployments) are by pod; `sm_ns` is measured.
        """
        joined = None
        if page is not None:
            joined = self.joiner.join([page.encode()], self._attribution)
        return Snapshot(
            node="n",
            owners=self._owners_of(held or {}, joined.subjects if joined else self.ledger.holders.subjects),
            joined=joined,
            health={KUBELET: UP if kubelet else DOWN, "a": DOWN if page is None else UP, "b": OTHER[one_page_fails]},
            assignments_age_seconds=0.0,
            page_sources=("a", "b"),
            inventory=self.inventory(),
            measured=self._measured(sm_ns, uses),
            cuda=cuda,
            workloads={(f"ns-{pod}", pod): (name, "Deployment") for pod, name in (workloads or {}).items()},
            pod_labels={
                (f"ns-{pod}", pod): (
                    *((("pod_uid", uids[pod]),) if uids and pod in uids else ()),
                    *((("label_team", labels[pod]),) if labels and pod in labels else ()),
                )
                for pod in {*(uids or {}), *(labels or {})}
            },
        )

    def _owners_of(self, held: Held, subjects: Mapping[Subject, int]) -> Owners:
        ids = tuple((pod, *of_pod) for pod, of_pod in held.items())
        facts = (ids, {**subjects}, {**self.mig}, self.slices, {**self.offered}, {**self.grants})
        if self._owners[0] != facts:
            self._owners = facts, self._build_owners(held, subjects)
        return self._owners[1]

    def _build_owners(self, held: Held, subjects: Mapping[Subject, int]) -> Owners:
        assignments = [
            Assignment(owner=owner(pod), resource=resource, device_id=device)
            for pod, ids in held.items()
            for resource, device in ids
        ]
        owners = build_owners(assignments, subjects, Knowledge(inventory=self.inventory()))
        holders = {
            key: tuple(replace(holder, grant=self.grants.get(holder.owner.pod)) for holder in of_key)
            for key, of_key in owners.holders.items()
        }
        return Owners(holders=holders, matches=owners.matches, offered=self.offered)

    def _measured(self, sm_ns: SmNs | None, uses: Mapping[str, float] | None) -> Measured | None:
        if sm_ns is None and uses is None:
            return None
        of_gpu = {
            (DeviceKey(uuid=GPU(0)), owner(pod)): Use(memory_bytes=round(mib * 2**20), sm_ratio=None, processes=1)
            for pod, mib in (uses or {}).items()
        }
        return Measured(sm_ns=sm_ns or {}, uses=of_gpu)

    def inventory(self) -> Inventory:
        gpus: dict[int, list[MigInstance]] = {}
        for uuid, (gpu, instance, profile) in self.mig.items():
            gpus.setdefault(gpu, []).append(MigInstance(uuid=uuid, instance_id=instance, profile=profile))
        return Inventory(
            gpus=tuple(
                InventoryGpu(uuid=GPU(gpu), index=str(gpu), mig=tuple(mig), slices=self.slices)
                for gpu, mig in gpus.items()
            )
        )

    def at(
        self, seconds: float, page: str | None, held: Held | None = None, ends: Ends | None = None, **more: object
    ) -> "Looks":
        """Note a look; `ends` are the last ends of containers, None without pods."""
        return self.note(seconds, self.snapshot(page, held, **more), ends)  # type: ignore[arg-type]  # more is what snapshot() takes

    def note(self, seconds: float, snapshot: Snapshot, ends: Ends | None = None) -> "Looks":
        """Note what was looked at."""
        note(self.ledger, snapshot, round(seconds * SECOND), self.rules, ends)
        return self

    def account(self, pod: str | None, gpu: int = 0, instance: str = "") -> Account:
        (found,) = [
            account
            for account in self.ledger.accounts.rows
            if account.owner == (owner(pod) if pod else None)
            and account.device == DeviceKey(uuid=GPU(gpu), instance=instance)
        ]
        return found

    def text(self) -> str:
        """What /metrics says of the accounts."""
        snapshot = Snapshot(
            node="n",
            owners=Owners(),
            joined=None,
            health={},
            assignments_age_seconds=None,
            accounts=self.ledger.accounts,
        )
        return render(filled(FAMILIES, Look(snapshot=snapshot))).decode()


def whole(*gpus: int) -> list[tuple[str, str]]:
    return [("nvidia.com/gpu", GPU(gpu)) for gpu in gpus]


def joules(account: Account) -> float | None:
    return account.amounts["energy_uj"] / 1e6 if "energy_uj" in account.amounts else None


def seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / SECOND
