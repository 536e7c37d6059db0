"""Whole pages, byte for byte: each generation of dcgm-exporter's page, joined with each label and sharing mode.

`make golden` writes the files anew; look at the difference before committing it.
"""

import subprocess
from pathlib import Path

import pytest

from exporter.exposition.join import Joiner
from exporter.exposition.legacy import with_gpu_health
from exporter.model.devices import Assignment
from exporter.model.pods import Owner
from exporter.model.slices import at_once
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from exporter.simulator.dcgm_pages import FAMILIES, LOW_UTIL_VIOLATION, SimulatedFamily, SimulatedRow, page
from tests.support.components import LINT, check
from tests.support.golden import Golden
from tests.support.made_pages import link_rows, made_row, more_families, value
from tests.support.owners import build_owners
from tests.support.places import DATA, GOLDEN

PAGES = DATA / "pages"
UUIDS = [f"GPU-{number}a5b6c7d-0000-4000-8000-00000000000{number}" for number in range(3)]
MIG_UUID = "MIG-11111111-2222-5333-8444-555555555555"
TRAIN = Owner(namespace="ml", pod="train-0", container="trainer")
SERVE = Owner(namespace="serving", pod="serve-7d9f", container="server")
NOTEBOOK = Owner(namespace="notebooks", pod="jupyter-1", container="notebook")
OWNERS = build_owners(
    [
        Assignment(owner=TRAIN, resource="nvidia.com/gpu", device_id=UUIDS[0]),
        Assignment(owner=SERVE, resource="nvidia.com/gpu.shared", device_id=f"{UUIDS[1]}::0"),
        Assignment(owner=NOTEBOOK, resource="nvidia.com/gpu.shared", device_id=f"{UUIDS[1]}::3"),
        Assignment(owner=NOTEBOOK, resource="nvidia.com/mig-1g.10gb", device_id=MIG_UUID),
    ]
)
# one GPU held whole, one shared by two pods, one idle
BUSY = (0.9, 0.5, 0.0)
MANY = more_families(60)
WHOLE = [
    made_row(index, uuid, busy, (*MANY, LOW_UTIL_VIOLATION))
    for index, (uuid, busy) in enumerate(zip(UUIDS, BUSY, strict=True))
]
# a GPU that is cut, as dcgm-exporter writes it with `-d g,i`: two of its 7 slices are active, to 60 and 20 %
OF_THE_GPU = (*FAMILIES[4:7], FAMILIES[23])  # repeated on every row; GPU_UTIL is on none
OF_THE_INSTANCE = (*FAMILIES[12:15], FAMILIES[20])  # FB_FREE, FB_USED, FB_RESERVED, GR_ENGINE_ACTIVE
WHOLE_GPU = {family.name: value(family.name, 0.8 / 7) for family in OF_THE_GPU}
MIG = [
    SimulatedRow(
        index=2,
        uuid=UUIDS[2],
        profile="1g.10gb" if instance else "",
        instance_id=instance,
        readings={**WHOLE_GPU, **dict(zip((family.name for family in OF_THE_INSTANCE), own, strict=True))},
    )
    for instance, own in (
        (None, (73_000, 8_000, 559, 0.8 / 7)),
        (7, (3_963, 6_000, 21, 0.6)),
        (8, (7_963, 2_000, 21, 0.2)),
    )
]
BY_DCGM = ("from-dcgm", "by-dcgm", "pod-of-dcgm")
ATTRIBUTED = [
    made_row(0, UUIDS[0], 0.9, owner=BY_DCGM),
    made_row(1, UUIDS[1], 0.5, owner=BY_DCGM),
    made_row(2, UUIDS[2], 0.0, owner=("", "", "")),
    made_row(2, UUIDS[2], 0.6, profile="1g.10gb", instance_id=7, owner=("notebook", "notebooks", "jupyter-1")),
]
VIRTUAL = [
    made_row(1, UUIDS[1], 0.5, owner=("server", "serving", "serve-7d9f"), vgpu="0"),
    made_row(1, UUIDS[1], 0.5, owner=("notebook", "notebooks", "jupyter-1"), vgpu="3"),
]
FEW = FAMILIES[4:8]


def make(rows: list[SimulatedRow], families: tuple[SimulatedFamily, ...] = FAMILIES, generation: str = "3") -> str:
    return page(rows, families, generation=generation, host_name="gpu-node-1")


OLDEST = make(WHOLE, (*FAMILIES, LOW_UTIL_VIOLATION), "1")
SIMULATED = {
    "1": OLDEST.replace("} 0\n# HELP dcgm_fb_free", "} 48\n# HELP dcgm_fb_free"),
    "3": make(WHOLE),
    "4.8": make(WHOLE, generation="4.8"),
    "4.9": make(WHOLE, generation="4.9"),
    "mig": make(MIG, (*OF_THE_GPU, *OF_THE_INSTANCE)),
    "links": make(WHOLE, FEW) + link_rows(WHOLE, BUSY),
    "attributed": make(ATTRIBUTED, FEW),
    "virtual": make(VIRTUAL, FEW),
    "60-families": make(WHOLE[:1], MANY),
}
NAMES = {
    "pod": ("pod", "namespace", "container"),
    "legacy": ("pod_name", "pod_namespace", "container_name"),
    "custom": ("owner_pod", "owner_namespace", "owner_container"),
}
SHARING = ("copy", "split", "device")
CASES = [(name, names, sharing) for name in SIMULATED for names in NAMES for sharing in SHARING]


def incoming(name: str) -> Path:
    return PAGES / f"{name}.prom"


def outgoing(name: str, names: str, sharing: str) -> Path:
    return GOLDEN / f"{name}.{names}.{sharing}.prom"


def joined(name: str, names: str, sharing: str) -> bytes:
    policy = LabelPolicy(names=NAMES[names], idle_labels=names == "pod", sharing=sharing)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    body = incoming(name).read_bytes()
    result = joiner.join([at_once(with_gpu_health(body)) if names == "legacy" else body], Attribution(OWNERS, policy))
    assert dict(result.rejected) == {}
    return result.body


@pytest.mark.parametrize("name", SIMULATED)
def test_the_simulator_writes_the_page_of_the_generation(name: str, golden: Golden) -> None:
    golden.holds(incoming(name), SIMULATED[name])


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_the_joined_page(case: tuple[str, str, str], golden: Golden) -> None:
    golden.holds(outgoing(*case), joined(*case).decode())


def test_no_page_is_left_over(golden: Golden) -> None:
    golden.holds_no_other(PAGES.iterdir(), map(incoming, SIMULATED))
    golden.holds_no_other(GOLDEN.glob("*.prom"), (outgoing(*case) for case in CASES))


@pytest.mark.real
@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_promtool_takes_it(promtool: Path, case: tuple[str, str, str]) -> None:
    code, complaints = check(promtool, outgoing(*case).read_bytes())
    assert code in (0, LINT), complaints
    assert [line for line in complaints if not line.startswith(("DCGM_", "dcgm_"))] == []


def test_goldens_are_committed() -> None:
    listed = subprocess.run(["git", "ls-files", "*.prom"], capture_output=True, text=True, check=False, cwd=GOLDEN)
    if listed.returncode == 0:  # an unpacked source archive has no git
        assert len(listed.stdout.split()) == len(CASES)
