"""Accounting: a look of the pulse at 112 MIG instances or measured shares of 16 GPUs, and the time on /metrics."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import count

from benchmarks.join import new_joiner
from benchmarks.table import Row, at_most, median_seconds, rounds
from exporter.accounts.ledger import Ledger, Rules
from exporter.model.devices import Assignment, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.measured import Measured
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs import own_metrics
from exporter.outputs.output import Look
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from tests.support.ledgers import note
from tests.support.owners import build_owners

GPUS, INSTANCES = range(16), range(7, 14)
# those of the 25 families of the default counters that the accounts read
FAMILIES: Mapping[str, Callable[[int, int, int], str]] = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda look, gpu, _: f"{123_456_789_012 + 3_000_000 * look + gpu}",
    "DCGM_FI_DEV_POWER_USAGE": lambda look, gpu, _: f"{300 + gpu + look / 7:.6f}",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda look, gpu, instance: f"{(look * 37 + gpu * 11 + instance) % 100 / 101:.6f}",
    "DCGM_FI_DEV_XID_ERRORS": lambda *_: "0",
    **{f"DCGM_FI_DEV_F{number}": lambda look, gpu, instance: f"{look * gpu + instance}" for number in range(21)},
}


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08d}-1111-2222-3333-444455556666"


def mig_labels(instance: int) -> str:
    return f',GPU_I_PROFILE="1g.10gb",GPU_I_ID="{instance}"' if instance else ""


def page(look: int, instances: Iterable[int] = INSTANCES) -> bytes:
    return "".join(
        f'{family}{{gpu="{gpu}",UUID="{uuid_of(gpu)}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3"'
        f"{mig_labels(instance)}}} {value(look, gpu, instance)}\n"
        for family, value in FAMILIES.items()
        for gpu in GPUS
        for instance in instances
    ).encode()


def held() -> tuple[Inventory, list[Assignment]]:
    """All instances, each held by a pod of its own."""
    inventory = Inventory(
        gpus=tuple(
            InventoryGpu(
                uuid=uuid_of(gpu),
                mig=tuple(MigInstance(uuid=f"MIG-{gpu}-{number}", instance_id=str(number)) for number in INSTANCES),
            )
            for gpu in GPUS
        )
    )
    return inventory, [
        Assignment(
            owner=Owner(namespace="team", pod=f"train-{gpu}-{number}", container="main"),
            resource="nvidia.com/mig-1g.10gb",
            device_id=f"MIG-{gpu}-{number}",
        )
        for gpu in GPUS
        for number in INSTANCES
    ]


def shares() -> tuple[Inventory, list[Assignment]]:
    """GPUs that are not cut, of which as many pods have shares."""
    return Inventory(), [
        Assignment(
            owner=Owner(namespace="team", pod=f"train-{gpu}-{number}", container="main"),
            resource="nvidia.com/gpu.shared",
            device_id=f"{uuid_of(gpu)}::{number}",
        )
        for gpu in GPUS
        for number in INSTANCES
    ]


def kernels(look: int, owners: Owners) -> Measured:
    """The time that each pod's kernels ran, up to a look."""
    return Measured(
        sm_ns={
            device: {None: look * 1_000, **{of.owner: look * 10**9 + number for number, of in enumerate(holders)}}
            for device, holders in owners.holders.items()
        }
    )


def snapshots(*, shared: bool = False) -> Callable[[], Snapshot]:
    """A function that makes a snapshot of the next page with each call, and joins it, as the pulse does."""
    inventory, pods = shares() if shared else held()
    policy = LabelPolicy()
    joiner = new_joiner(policy)
    pages = [page(look, (0,) if shared else INSTANCES) for look in range(10)]
    subjects = joiner.join(pages[:1], Attribution(Owners(), policy)).subjects
    owners = build_owners(pods, subjects, Knowledge(inventory=inventory))
    attribution = Attribution(owners, policy)
    looks = count()

    def join() -> Snapshot:
        pages.append(pages.pop(0))
        return Snapshot(
            node="n",
            owners=owners,
            joined=joiner.join(pages[:1], attribution),
            health={KUBELET: Health(up=True)},
            assignments_age_seconds=0.0,
            inventory=inventory,
            measured=kernels(next(looks), owners) if shared else None,
        )

    return join


def look_seconds(join: Callable[[], Snapshot], ledger: Ledger, times: int) -> float:
    """The seconds that the ledger takes for a look, without the join."""
    rules, moments = Rules(), count(step=Rules().interval_ns)
    note(ledger, join(), next(moments), rules)
    joined = median_seconds(join, rounds=times)
    return median_seconds(lambda: note(ledger, join(), next(moments), rules), rounds=times) - joined


def run(effort: float) -> list[Row]:
    ledger, join, times = Ledger(), snapshots(), rounds(500, effort)
    of_instances = look_seconds(join, ledger, times)
    of_shares = look_seconds(snapshots(shared=True), Ledger(), times)
    snapshot = join()
    without, shown = Look(snapshot=snapshot), Look(snapshot=replace(snapshot, accounts=ledger.accounts))
    plain = median_seconds(lambda: at_once(own_metrics.render(without)), rounds=times)
    with_accounts = median_seconds(lambda: at_once(own_metrics.render(shown)), rounds=times)
    return [
        Row(
            f"a look of accounting, {len(GPUS) * len(INSTANCES)} MIG instances, {len(FAMILIES)} families",
            f"{of_instances * 1e3:.2f} ms",
            at_most(1, "ms", 1e-3),
            of_instances,
        ),
        Row(
            f"the same of {len(GPUS) * len(INSTANCES)} shares of {len(GPUS)} GPUs whose kernels are measured",
            f"{of_shares * 1e3:.2f} ms",
            at_most(1, "ms", 1e-3),
            of_shares,
        ),
        Row(
            f"{ledger.rows} accounts on /metrics",
            f"{(with_accounts - plain) * 1e3:.2f} ms (all else {plain * 1e3:.2f} ms)",
            None,
            with_accounts - plain,
        ),
    ]
