"""What programs ask of CUDA: on /metrics, and as an object of /container/metrics."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from exporter.exposition.families import render
from exporter.exposition.join import Joiner
from exporter.model.cuda import OTHER_ERRORS, UNKNOWN_DEVICE, CudaCounts, CudaKey, CudaUse, CudaUses
from exporter.model.devices import Assignment, DeviceKey
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.outputs import device_rows
from exporter.outputs.cuda_use import as_object
from exporter.outputs.families import cuda
from exporter.outputs.families.family import filled
from exporter.outputs.output import NOTHING_SEEN, Look
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.owners import Knowledge
from tests.support import quick_yaml
from tests.support.components import check
from tests.support.looks import GPU as UUID
from tests.support.looks import owner, row
from tests.support.owners import build_owners
from tests.support.places import ROOT
from tests.support.strategies import attribution_of

A = owner("a")
GPU = DeviceKey(uuid=UUID(0))
USE = CudaUse(
    counts=CudaCounts(
        launches=2**60 + 1,
        threads=3,
        graph_launches=4,
        allocations=5,
        failed_allocations=6,
        frees=7,
        memory_bytes=8,
        peak_bytes=9,
        freed_bytes=10,
        copies=(11, 12, 13, 14, 15),
        copied_bytes=(16, 17, 18, 19, 20),
        syncs=21,
        sync_ns=22_000_000_001,
        active_ns=23,
        errors={100: 24, OTHER_ERRORS: 26, 2: 25},
    ),
    released_bytes=27,
    active_seconds=28.5,
    processes=29,
)
USES = CudaUses(
    uses={(A, GPU): USE, (None, DeviceKey(uuid="GPU-2", instance="7")): CudaUse(counts=CudaCounts(launches=1))},
    programs=3,
    failures={"no_symbols": 2, "gone": 0},
    unreadable=4,
    lost={"spans": 5, "waiting": 0},
    map_entries={"processes": (7, 4096)},
)


def text(uses: CudaUses | None) -> str:
    look = Look(snapshot=replace(NOTHING_SEEN, node="n1", cuda=uses))
    return render(filled((*cuda.FAMILIES, *cuda.PROBE), look)).decode()


def samples(uses: CudaUses | None) -> list[str]:
    return [line for line in text(uses).splitlines() if not line.startswith("#")]


def test_each_row_says_what_its_programs_asked_of_the_gpu() -> None:
    of_a = f'namespace="ns-a",pod="a",container="main",UUID="{GPU.uuid}",GPU_I_ID="",node="n1"'
    copies = ("host_to_host", "host_to_device", "device_to_host", "device_to_device", "default")
    assert [line for line in samples(USES) if 'pod="a"' in line] == [
        f"pod_gpu_cuda_processes{{{of_a}}} 29",
        f"pod_gpu_cuda_kernel_launches_total{{{of_a}}} 1152921504606846977",
        f"pod_gpu_cuda_graph_launches_total{{{of_a}}} 4",
        f"pod_gpu_cuda_threads_launched_total{{{of_a}}} 3",
        f"pod_gpu_cuda_allocations_total{{{of_a}}} 5",
        f"pod_gpu_cuda_allocation_failures_total{{{of_a}}} 6",
        f"pod_gpu_cuda_frees_total{{{of_a}}} 7",
        f"pod_gpu_cuda_memory_allocated_bytes{{{of_a}}} 8",
        f"pod_gpu_cuda_memory_peak_bytes{{{of_a}}} 9",
        f"pod_gpu_cuda_memory_freed_bytes_total{{{of_a}}} 10",
        f"pod_gpu_cuda_memory_released_at_exit_bytes_total{{{of_a}}} 27",
        *(f'pod_gpu_cuda_copies_total{{direction="{way}",{of_a}}} {n}' for n, way in enumerate(copies, 11)),
        *(f'pod_gpu_cuda_copied_bytes_total{{direction="{way}",{of_a}}} {n}' for n, way in enumerate(copies, 16)),
        f"pod_gpu_cuda_synchronizations_total{{{of_a}}} 21",
        f"pod_gpu_cuda_sync_seconds_total{{{of_a}}} 22.000000001",
        f"pod_gpu_cuda_active_seconds_total{{{of_a}}} 28.5",
        f'pod_gpu_cuda_errors_total{{code="2",{of_a}}} 25',
        f'pod_gpu_cuda_errors_total{{code="100",{of_a}}} 24',
        f'pod_gpu_cuda_errors_total{{code="other",{of_a}}} 26',
    ]


def test_processes_in_no_pod_and_gpus_that_nobody_knows_have_empty_labels() -> None:
    uses = CudaUses(
        uses={(None, DeviceKey(uuid="GPU-2", instance="7")): CudaUse(counts=CudaCounts()), (A, UNKNOWN_DEVICE): USE}
    )
    of_none = 'namespace="",pod="",container="",UUID="GPU-2",GPU_I_ID="7",node="n1"'
    of_a = 'namespace="ns-a",pod="a",container="main",UUID="",GPU_I_ID="",node="n1"'
    assert [line for line in samples(uses) if line.startswith("pod_gpu_cuda_processes")] == [
        f"pod_gpu_cuda_processes{{{of_none}}} 0",
        f"pod_gpu_cuda_processes{{{of_a}}} 29",
    ]


def test_how_the_probe_is() -> None:
    assert [line for line in samples(USES) if "exporter_probe" in line] == [
        "pod_gpu_exporter_probe_programs 3",
        'pod_gpu_exporter_probe_attach_failures_total{reason="no_symbols"} 2',
        'pod_gpu_exporter_probe_attach_failures_total{reason="gone"} 0',
        "pod_gpu_exporter_probe_unreadable_processes 4",
        'pod_gpu_exporter_probe_events_lost_total{map="spans"} 5',
        'pod_gpu_exporter_probe_events_lost_total{map="waiting"} 0',
        'pod_gpu_exporter_probe_map_entries{map="processes"} 7',
        'pod_gpu_exporter_probe_map_limit{map="processes"} 4096',
    ]


def test_without_a_probe_there_is_nothing() -> None:
    assert text(None) == ""
    assert samples(CudaUses()) == [
        "pod_gpu_exporter_probe_programs 0",
        "pod_gpu_exporter_probe_unreadable_processes 0",
    ]


@pytest.mark.real
def test_promtool_has_nothing_to_say(promtool: Path) -> None:
    assert check(promtool, text(USES).encode()) == (0, [])


def test_the_object_and_its_description_have_a_field_for_each_family() -> None:
    found = as_object(USE)
    assert {f"pod_gpu_cuda_{name}" for name in found} == {
        family.name.removesuffix("_total") for family in cuda.FAMILIES
    }
    described = quick_yaml.load((ROOT / "docs" / "openapi.yaml").read_text())["components"]["schemas"]
    schema = {**described["Container"]["properties"]["cuda"], "components": {"schemas": described}}
    assert list(schema["properties"]) == list(found)
    Draft202012Validator({**schema, "required": list(found)}).validate(json.loads(json.dumps(found)))
    assert found["errors"] == {"2": 25, "100": 24, "other": 26}
    assert (found["kernel_launches"], found["sync_seconds"], found["copies"]["default"]) == (
        2**60 + 1,
        22.000000001,
        15,
    )


def test_the_object_says_what_the_families_say() -> None:
    """Field by field and number by number: both are of one use."""
    said = as_object(USE)
    for line in samples(CudaUses(uses={(A, GPU): USE})):
        name, _, rest = line.partition("{")
        if not name.startswith("pod_gpu_cuda_"):
            continue
        value = said[name.removeprefix("pod_gpu_cuda_").removesuffix("_total")]
        if isinstance(value, dict):
            value = value[rest.partition('"')[2].partition('"')[0]]
        assert float(line.rpartition(" ")[2]) == pytest.approx(float(value)), line


def of_holders(uses: dict[CudaKey, CudaUse] | None) -> Snapshot:
    """A whole GPU of pod a, and one that nobody holds."""
    held = Assignment(owner=A, resource="nvidia.com/gpu", device_id=UUID(0))
    owners = build_owners([held], {}, Knowledge())
    policy = LabelPolicy()
    attribution = attribution_of(owners, policy)
    joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
    page = row("DCGM_FI_DEV_GPU_UTIL", "90", 0) + row("DCGM_FI_DEV_GPU_UTIL", "0", 1)
    return replace(
        NOTHING_SEEN,
        owners=owners,
        joined=joiner.join([page.encode()], attribution),
        attribute=attribution,
        cuda=None if uses is None else CudaUses(uses=uses),
    )


def test_what_a_container_asked_of_a_gpu_stands_in_its_own_object() -> None:
    uses: dict[CudaKey, CudaUse] = {
        (A, GPU): USE,
        (A, UNKNOWN_DEVICE): USE,
        (None, GPU): USE,
        (owner("b"), DeviceKey(uuid=UUID(1))): USE,
    }
    held, idle = at_once(device_rows.rows(of_holders(uses)))
    assert (held.device_uuid, held.cuda) == (UUID(0), as_object(USE))
    assert idle.cuda is None
    assert all(row.cuda is None for row in at_once(device_rows.rows(of_holders(None))))


def test_a_free_gpus_object_has_what_processes_outside_pods_asked_of_it() -> None:
    held, idle = at_once(device_rows.rows(of_holders({(None, GPU): USE, (None, DeviceKey(uuid=UUID(1))): USE})))
    assert held.cuda is None
    assert (idle.pod, idle.cuda) == ("", as_object(USE))
