"""Accounting: a look of the pulse at 112 MIG instances of 16 GPUs, and what it adds to /metrics."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count

from benchmarks.join import new_joiner
from benchmarks.table import Row, median_seconds, rounds
from exporter.accounting.ledger import Ledger, Rules
from exporter.attribution.labels import LabelPolicy
from exporter.attribution.owners import Knowledge, build_owners
from exporter.attribution.rows import Attribution
from exporter.model.devices import Assignment, Inventory, InventoryGpu, MigInstance, Owners
from exporter.model.pods import Owner
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs import own_metrics
from exporter.outputs.output import Look

GPUS, INSTANCES = range(16), range(7, 14)
# of the 25 families of the default counters these are accounted
FAMILIES: Mapping[str, Callable[[int, int, int], str]] = {
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda look, gpu, _: f"{123_456_789_012 + 3_000_000 * look + gpu}",
    "DCGM_FI_DEV_POWER_USAGE": lambda look, gpu, _: f"{300 + gpu + look / 7:.6f}",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": lambda look, gpu, instance: f"{(look * 37 + gpu * 11 + instance) % 100 / 101:.6f}",
    "DCGM_FI_DEV_XID_ERRORS": lambda *_: "0",
    **{f"DCGM_FI_DEV_F{number}": lambda look, gpu, instance: f"{look * gpu + instance}" for number in range(21)},
}


def uuid_of(gpu: int) -> str:
    return f"GPU-{gpu:08d}-1111-2222-3333-444455556666"


def page(look: int) -> bytes:
    return "".join(
        f'{family}{{gpu="{gpu}",UUID="{uuid_of(gpu)}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
        f'GPU_I_PROFILE="1g.10gb",GPU_I_ID="{instance}",Hostname="n"}} {value(look, gpu, instance)}\n'
        for family, value in FAMILIES.items()
        for gpu in GPUS
        for instance in INSTANCES
    ).encode()


def held() -> tuple[Inventory, list[Assignment]]:
    """Every instance, each in a pod of its own."""
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


def snapshots() -> Callable[[], Snapshot]:
    """Makes one with each call: of the next page, joined right then, as the pulse does."""
    inventory, pods = held()
    policy = LabelPolicy()
    joiner = new_joiner(policy)
    subjects = joiner.join([page(0)], Attribution(Owners(), policy)).subjects
    owners = build_owners(pods, subjects, Knowledge(inventory=inventory))
    attribution = Attribution(owners, policy)
    pages = [page(look) for look in range(10)]

    def join() -> Snapshot:
        pages.append(pages.pop(0))
        return Snapshot(
            node="n",
            owners=owners,
            joined=joiner.join(pages[:1], attribution),
            health={KUBELET: Health(up=True)},
            assignments_age_seconds=0.0,
            inventory=inventory,
        )

    return join


def run(effort: float) -> list[Row]:
    ledger, rules, join, moments = Ledger(), Rules(), snapshots(), count(step=Rules().interval_ns)

    def look() -> None:
        ledger.note(join(), next(moments), rules)

    look()
    times = rounds(500, effort)
    joined = median_seconds(join, rounds=times)
    both = median_seconds(look, rounds=times)
    snapshot = join()
    without, shown = Look(snapshot=snapshot), Look(snapshot=replace(snapshot, accounts=ledger.accounts))
    plain = median_seconds(lambda: own_metrics.render(without), rounds=times)
    with_accounts = median_seconds(lambda: own_metrics.render(shown), rounds=times)
    return [
        Row(
            f"a look of accounting, {len(GPUS) * len(INSTANCES)} MIG instances, {len(FAMILIES)} families",
            f"{(both - joined) * 1e3:.2f} ms",
            "at most 1 ms",
            both - joined,
        ),
        Row(
            f"{ledger.rows} accounts on /metrics",
            f"{(with_accounts - plain) * 1e3:.2f} ms (all else {plain * 1e3:.2f} ms)",
            "",
            with_accounts - plain,
        ),
    ]
