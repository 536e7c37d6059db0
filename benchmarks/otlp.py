"""A push by OTLP of 112 MIG instances of 16 GPUs with their accounts: the event loop's time, and the memory kept."""

import zlib
from collections.abc import Callable
from dataclasses import replace
from time import thread_time

from benchmarks import accounts
from benchmarks.accounts import GPUS, INSTANCES
from benchmarks.join import new_joiner
from benchmarks.table import Row, at_most, rounds
from exporter.accounts.ledger import Ledger, Rules
from exporter.model.devices import Owners
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs.otlp.messages import Messages
from exporter.outputs.otlp.metrics import Metrics
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from exporter.ownership.sample_rows import Attribution
from tests.support.ledgers import note
from tests.support.owners import build_owners

# those families of a MIG instance's rows that are pushed
_FAMILIES = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "0.4{}",
    "DCGM_FI_DEV_FB_USED": "51{}",
    "DCGM_FI_DEV_FB_TOTAL": "9728",
    "DCGM_FI_DEV_GPU_TEMP": "5{}",
    "DCGM_FI_DEV_MEMORY_TEMP": "6{}",
    "DCGM_FI_DEV_POWER_USAGE": "31{}.25",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "12345678901{}000",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "12345{}",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "54321{}",
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": "0",
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": "0",
    "DCGM_FI_DEV_ROW_REMAP_PENDING": "0",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "0",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "4",
}


def _page(look: int) -> bytes:
    return "".join(
        f'{family}{{gpu="{gpu}",UUID="{accounts.uuid_of(gpu)}",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3"'
        f"{accounts.mig_labels(instance)}}} {value.format(look % 10)}\n"
        for family, value in _FAMILIES.items()
        for gpu in GPUS
        for instance in INSTANCES
    ).encode()


def looks() -> Callable[[str], Snapshot]:
    """A function that makes a look at the next page, with the pods of the given generation."""
    inventory, assignments = accounts.held()
    policy, number, ledgers = LabelPolicy(), 0, dict[str, Ledger]()
    joiner = new_joiner(policy)
    subjects = joiner.join([_page(0)], Attribution(Owners(), policy)).subjects
    of_pods: dict[str, Attribution] = {}
    owners = Owners()

    def look(pods: str) -> Snapshot:
        nonlocal number, owners
        number += 1
        if pods not in of_pods:
            named = [
                replace(one, owner=Owner(namespace="team", pod=f"{one.owner.pod}-{pods}", container="main"))
                for one in assignments
            ]
            owners = build_owners(named, subjects, Knowledge(inventory=inventory))
            of_pods[pods] = Attribution(owners, policy)
        snapshot = Snapshot(
            node="n",
            owners=owners,
            joined=joiner.join([_page(number)], of_pods[pods]),
            attribute=of_pods[pods],
            health={KUBELET: Health(up=True)},
            assignments_age_seconds=0.0,
            inventory=inventory,
        )
        ledger = ledgers.setdefault(pods, Ledger())
        note(ledger, snapshot, number * Rules().interval_ns, Rules())
        return replace(snapshot, accounts=ledger.accounts)

    return look


def run(effort: float) -> list[Row]:
    look, maker, messages = looks(), Metrics(), Messages({"k8s.node.name": "n"}, "1")
    times = rounds(40, effort)
    took: dict[bool, list[float]] = {False: [], True: []}
    points = packed = 0
    for number in range(2 * times):
        # with every second push, the pods are others
        snapshot = look(str(number // 2))
        began = thread_time()
        metrics = at_once(maker.work_for(snapshot, moment=10.0 * number, now_ns=number))
        pieces = [at_once(work) for work in messages.pieces(metrics, number)]
        took[number % 2 == 0].append(thread_time() - began)
        points = sum(len(each.values) for each in metrics)
        packed = len(zlib.compress(b"".join(pieces), 1))
    steady, changed = (sorted(took[are_others])[times // 2] for are_others in (False, True))
    of = f"{len(GPUS) * len(INSTANCES)} MIG instances"
    return [
        Row(
            f"a push by OTLP, {of}: event loop's CPU",
            f"{steady * 1e3:.1f} ms ({points} points, {packed >> 10} KiB)",
            at_most(10, "ms", 1e-3),
            steady,
        ),
        Row("the same where every pod is another one", f"{changed * 1e3:.1f} ms", None, changed),
    ]
