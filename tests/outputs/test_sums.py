"""docs/promql.md, "Which sums are right": every cell of the table, on a node of three GPUs whose owners come and go."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise, product

import pytest

from exporter.accounts.ledger import Ledger, Rules
from exporter.exposition.families import unescape
from exporter.exposition.join import Joiner
from exporter.exposition.lines import SampleLine, read_line
from exporter.model.devices import Assignment, DeviceKey, Inventory, InventoryGpu, MigInstance
from exporter.model.pages import Page
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.outputs import own_metrics
from exporter.outputs.output import Look
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import COPY, DEVICE, SPLIT, LabelPolicy
from tests.support.ledgers import note
from tests.support.places import ROOT

PAGE = ROOT / "docs" / "promql.md"
WHOLE, SHARED, MIG = "GPU-whole", "GPU-shared", "GPU-mig"
KINDS = {"whole": WHOLE, "time-sliced": SHARED, "MIG": MIG}
INVENTORY = Inventory(
    gpus=(
        InventoryGpu(
            uuid=MIG,
            mig=(
                MigInstance(uuid="MIG-3g", instance_id="1", profile="3g.40gb"),
                MigInstance(uuid="MIG-4g", instance_id="2", profile="4g.40gb"),
            ),
        ),
    )
)
POWER, MEMORY, ENERGY = "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
WATTS, MIB = 310.0, {WHOLE: 1000.0, SHARED: 800.0, MIG: 700.0}
LOOKS_APART_SECONDS = 10
LEAST_JOULES, WITHIN = 0.001, 1e-4
# Who holds what at each look, by device id, and how many joules each GPU's counter has grown by since the look before.
# It only grows between looks at which the same containers hold the same, and held it at the look before: who has how
# much is then beyond dispute. But
# it never stands still, as no GPU's does: each page is another read.
NOBODY: Mapping[str, str] = {}
FEW = {WHOLE: "a", f"{SHARED}::0": "b", "MIG-3g": "d"}
ALL = {**FEW, f"{SHARED}::1": "c", "MIG-4g": "e"}
HISTORY = (
    (NOBODY, 0), (NOBODY, 14), (FEW, 0), (FEW, 140), (ALL, 0), (ALL, 70), (NOBODY, 0), (NOBODY, 0), (NOBODY, 14),
)  # fmt: skip
FULL_LOOK = 5
# the device plugin offers four shares of the time-sliced GPU
OFFERED = {("nvidia.com/gpu", DeviceKey(uuid=SHARED)): 4}
# What is so: of each GPU in all, and what its owners have of it. Of a time-sliced GPU each has an equal part. Of a MIG
# GPU each has a part by activity (0.5 where it is held, else 0) times compute slices.
TOTALS = {
    POWER: dict.fromkeys(KINDS.values(), WATTS),
    MEMORY: MIB,
    ENERGY: dict.fromkeys(KINDS.values(), 238_000.0),  # in the counter's mJ
    "pod_gpu_energy_joules_total": dict.fromkeys(KINDS.values(), 238.0),
    "pod_gpu_allocated_seconds_total": {WHOLE: 40.0, SHARED: 40 * 1 / 4 + 20 * 1 / 4, MIG: 40 * 3 / 7 + 20 * 4 / 7},
}
OWNERS = {
    POWER: {"a": WATTS, "b": WATTS / 2, "c": WATTS / 2, "d": WATTS * 3 / 7, "e": WATTS * 4 / 7},
    MEMORY: {"a": 1000.0, "b": 400.0, "c": 400.0, "d": 300.0, "e": 400.0},
    ENERGY: {"a": 210_000.0, "b": 175_000.0, "c": 35_000.0, "d": 170_000.0, "e": 40_000.0},
    "pod_gpu_energy_joules_total": {"a": 210.0, "b": 175.0, "c": 35.0, "d": 170.0, "e": 40.0},
    "pod_gpu_allocated_seconds_total": {"a": 40.0, "b": 10.0, "c": 5.0, "d": 40 * 3 / 7, "e": 20 * 4 / 7},
}
OF_GPU = {WHOLE: "a", SHARED: "bc", MIG: "de"}
# the whole GPU's counter, while each held some of it
GPUS_WHILE_HELD = {"a": 210_000.0, "b": 210_000.0, "c": 70_000.0, "d": 210_000.0, "e": 70_000.0}

Series = tuple[str, frozenset[tuple[str, str]]]  # name and labels


def page(joules: float, held: Mapping[str, str]) -> bytes:
    """dcgm-exporter's, as 3.x writes it: but for memory and activity, instances' rows have what is the whole GPU's."""
    lines = defaultdict[str, list[str]](list)
    for index, uuid in enumerate(KINDS.values()):
        for labels, memory, activity in (
            [("", MIB[uuid], 0.5)]
            if uuid != MIG
            else [
                (f',GPU_I_PROFILE="{profile}g.40gb",GPU_I_ID="{instance}"', profile * 100.0, 0.5 * (name in held))
                for name, profile, instance in (("MIG-3g", 3, 1), ("MIG-4g", 4, 2))
            ]
        ):
            row = f'{{gpu="{index}",UUID="{uuid}",modelName="NVIDIA H100 80GB HBM3"{labels}}}'
            lines[POWER].append(f"{row} {WATTS:.6f}")
            lines[MEMORY].append(f"{row} {memory:.0f}")
            lines[ENERGY].append(f"{row} {joules * 1000:.0f}")
            lines["DCGM_FI_PROF_GR_ENGINE_ACTIVE"].append(f"{row} {activity:.6f}")
    return "".join(f"{name}{row}\n" for name, rows in lines.items() for row in rows).encode()


def samples(text: bytes) -> Iterable[tuple[Series, float]]:
    for line in text.split(b"\n"):
        sample = read_line(line)
        if isinstance(sample, SampleLine):
            labels = frozenset((name.decode(), unescape(value)) for name, value in sample.labels if value)
            yield (sample.name.decode(), labels), float(sample.value)


@dataclass
class Seen:
    """What a Prometheus has of a history: of each series the samples, and at which looks it had them."""

    values: Mapping[Series, Mapping[int, float]]

    def _sums(self, name: str, uuid: str, of: Callable[[Mapping[int, float]], float | None]) -> Mapping[str, float]:
        """By pod, "" for the rows of nobody."""
        sums = defaultdict[str, float](float)
        for (family, labels), values in self.values.items():
            known, value = dict(labels), of(values)
            if family == name and known.get("UUID") == uuid and value is not None:
                sums[known.get("pod", "")] += value
        return sums

    def at(self, look: int, name: str, uuid: str) -> Mapping[str, float]:
        return self._sums(name, uuid, lambda values: values.get(look))

    def increase(self, name: str, uuid: str) -> Mapping[str, float]:
        return self._sums(name, uuid, lambda values: increase(list(values.values())))


def increase(values: Sequence[float]) -> float:
    """As Prometheus counts it, but for what it guesses at the ends: a sample below the last begins at 0."""
    return sum(now - last if now >= last else now for last, now in pairwise(values))


@cache
def seen(sharing: str) -> Seen:
    """The history, as a Prometheus sees it that scrapes both paths after every look."""
    policy = LabelPolicy(sharing=sharing)
    owners, ledger, joules = CurrentOwners(policy), Ledger(), 1_000_000.0
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    values = defaultdict[Series, dict[int, float]](dict)
    for number, (held, grown) in enumerate(HISTORY):
        joules += grown or LEAST_JOULES
        at_seconds = number * LOOKS_APART_SECONDS
        read = Page(source="dcgm", body=page(joules, held), read_at_seconds=at_seconds, moment=at_seconds)
        assignments = frozenset(
            Assignment(
                owner=Owner(namespace="ml", pod=pod, container="main"), resource="nvidia.com/gpu", device_id=device_id
            )
            for device_id, pod in held.items()
        )
        joined = joiner.join_for(
            [read.body],
            lambda subjects, assignments=assignments, read=read: owners.update(  # type: ignore[misc] # mypy asks for the defaults' types
                assignments, subjects, inventory=INVENTORY, pages=[read]
            ),
        )
        snapshot = Snapshot(
            node="n",
            owners=replace(owners.owners, offered=OFFERED),
            joined=joined,
            health={KUBELET: Health(up=True), "dcgm": Health(up=True)},
            assignments_age_seconds=0.0,
            page_sources=("dcgm",),
            inventory=INVENTORY,
        )
        note(ledger, snapshot, at_seconds * 1_000_000_000, Rules())
        own = b"".join(at_once(own_metrics.render(Look(snapshot=replace(snapshot, accounts=ledger.accounts)))))
        for series, value in samples(joined.body + own):
            values[series][number] = value
    return Seen(values)


# the accounts, of which the page says in a sentence that they are right in every mode
ACCOUNTS = ("pod_gpu_energy_joules_total", "pod_gpu_allocated_seconds_total")
SUMS = {"power": POWER, "memory": MEMORY, "energy": f"increase({ENERGY}[1d])"}
OVER = ("all rows", "an owner's")


def table() -> list[list[str]]:
    """The table's rows, each as its cells: one of each sum, kind of GPU, and over what."""
    text = PAGE.read_text().partition("\n## Which sums are right\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    heads, _, *rest = rows
    assert heads == ["sum of", "GPU", "over", *(f"`{mode}`" for mode in (COPY, SPLIT, DEVICE))]
    of_fields = [
        [SUMS[what], gpu, over, *cells]
        for whats, gpus, overs, *cells in rest
        for what in whats.split(", ")
        for gpu in (KINDS if gpus == "any" else [gpus])
        for over in overs.split(", ")
    ]
    of_accounts = [
        [f"increase({name}[1d])", gpu, over, *["right"] * 3] for name in ACCOUNTS for gpu in KINDS for over in OVER
    ]
    return of_fields + of_accounts


CELLS = [
    pytest.param(what, KINDS[gpu], over, mode, cell.partition(":")[0], id=f"{what}-{gpu}-{over}-{mode}")
    for what, gpu, over, *cells in table()
    for mode, cell in zip((COPY, SPLIT, DEVICE), cells, strict=True)
]


def measure(what: str, uuid: str, mode: str) -> tuple[str, Mapping[str, float]]:
    """A row's first cell: the family's name, and what Prometheus would add up, by pod."""
    counter = re.fullmatch(r"increase\((\w+)\[1d\]\)", what)
    if counter:
        return counter[1], seen(mode).increase(counter[1], uuid)
    return what, seen(mode).at(FULL_LOOK, what, uuid)


# issue 9, "Must show" 1
@pytest.mark.parametrize(("what", "uuid", "over", "mode", "cell"), CELLS)
def test_a_cell_of_the_table(what: str, uuid: str, over: str, mode: str, cell: str) -> None:
    name, found = measure(what, uuid, mode)
    if over == "all rows":
        total, real = sum(found.values()), TOTALS[name][uuid]
        verdicts = {
            "right": total == pytest.approx(real, WITHIN),
            "times the owners": total == pytest.approx(real * len(OF_GPU[uuid]), WITHIN),
            "times the instances": total == pytest.approx(real * 2, WITHIN),
            "too high": total > real * 1.2,
        }
    else:
        by_owner = {pod: found[pod] for pod in OF_GPU[uuid] if pod in found}
        real_parts = {pod: OWNERS[name][pod] for pod in OF_GPU[uuid]}
        the_gpus = {pod: GPUS_WHILE_HELD[pod] if name == ENERGY else TOTALS[name][uuid] for pod in OF_GPU[uuid]}
        verdicts = {
            "right": by_owner == pytest.approx(real_parts, WITHIN),
            "the whole GPU's": by_owner == pytest.approx(the_gpus, WITHIN),
            "nothing": not by_owner,
            "too low": bool(by_owner) and sum(by_owner.values()) < 0.8 * sum(real_parts.values()),
        }
        assert over == "an owner's"
    assert verdicts[cell], found
    assert not verdicts["right"] or cell == "right", "it is better than the table says"


def test_the_table_has_every_kind_of_gpu_and_every_sum() -> None:
    of_fields = [(what, gpu, over) for what, gpu, over, *_ in table()][: len(SUMS) * len(KINDS) * len(OVER)]
    assert sorted(of_fields) == sorted(product(SUMS.values(), KINDS, OVER))
    assert len(CELLS) == 3 * 3 * 2 * 3 + 2 * 3 * 2 * 3
    for name in SUMS.values():
        assert f"`{name}`" in PAGE.read_text()
