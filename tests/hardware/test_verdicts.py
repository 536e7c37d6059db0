"""The rows of a whole run, from made-up seconds: what a GPU under load would say, and what spoils it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.hardware.judging import MIB
from tests.hardware.moments import Moment
from tests.hardware.pages import Sample
from tests.hardware.smi import SmiGpu, SmiLog
from tests.hardware.verdicts import RECEIVED, SENT, USED, Run, judged

GPU, OTHER = (f"GPU-0000000{number}-1111-2222-3333-444455556666" for number in range(2))
GIB = 1024 * MIB
LABELS = {
    "pci_bus_id": "00000000:53:00.0",
    "modelName": "NVIDIA H100 80GB HBM3",
    "device": "nvidia0",
    "DCGM_FI_DRIVER_VERSION": "580.105.08",
}
# name, from, until, the pods
PHASES = (
    ("idle", 0, 15, ()),
    ("matmul", 15, 45, ("train",)),
    ("copy", 45, 55, ("copy",)),
    ("shared", 55, 75, ("small", "large")),
    ("after", 75, 83, ()),
)
WORKS = {"matmul", "copy", "shared"}
PIDS = {"small": 41, "large": 42}
ALLOCATED = {"small": 4 * GIB, "large": 12 * GIB}
CONTEXT = 500 * MIB
MOVED = 10 * GIB  # a second


def phase_at(at: float) -> tuple[str, Sequence[str]]:
    return next((name, pods) for name, began, ended, pods in PHASES if began <= at < ended)


def about(**more: Any) -> dict[str, Any]:
    phases = [
        {
            "name": name,
            "began": began,
            "ended": ended,
            "pods": list(pods),
            "processes": [
                {"pod": pod, "pid": PIDS[pod], "allocated": ALLOCATED[pod]} for pod in pods if name == "shared"
            ],
        }
        for name, began, ended, pods in PHASES
    ]
    return {
        "uuid": GPU,
        "began": 0,
        "ended": 83,
        "load": "PyTorch 2.9 13.0",
        "cgroups": "made",
        "kernel_log": "",
        "bundle": "bundle.tar.gz",
        "phases": phases,
        "copied": [[45, 0, 0], [50, 5 * MOVED, 0], [55, 5 * MOVED, 5 * MOVED]],
        "probe": {"launches": 4321, "counted": 4321},
        "cost": {"serve": {"rss_mib": 80.0, "cpu_seconds": 8.3}},
        "left_behind": [],
        **more,
    }


def values_at(at: float) -> dict[str, float]:
    """What the page has of the GPU, whoever holds it."""
    name, _ = phase_at(at)
    works = name in WORKS
    is_multiplying = name in {"matmul", "shared"}
    # 500 W under load, 100 W idle, and the counter is their integral
    joules = 100 * at + 400 * min(max(at - 15, 0), 60)
    return {
        "DCGM_FI_DEV_POWER_USAGE": 500.0 if works else 100.0,
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 7_000_000 + joules * 1000,
        "DCGM_FI_DEV_GPU_UTIL": 100.0 if works else 0.0,
        "DCGM_FI_DEV_FB_TOTAL": 81559.0,
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.99 if works else 0.0,
        "DCGM_FI_PROF_SM_ACTIVE": 0.95 if is_multiplying else 0.0,
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.6 if is_multiplying else 0.0,
        "DCGM_FI_PROF_DRAM_ACTIVE": 0.2 if is_multiplying else 0.0,
        # means of the second before, with headers
        RECEIVED: 1.05 * MOVED * overlap(at, 45, 50),
        SENT: 1.05 * MOVED * overlap(at, 50, 55),
    }


def overlap(at: float, began: float, ended: float) -> float:
    """The part of the second before a sample in which something worked."""
    return max(0.0, min(at + 0.1, ended) - max(at - 0.9, began))


def samples_at(at: float) -> list[Sample]:
    name, pods = phase_at(at)
    samples = []
    for pod in pods or ("",):
        shared = {"gpu_shared": "true"} if name == "shared" else {}
        labels = {"UUID": GPU, **LABELS, "pod": pod, **shared}
        samples += [Sample(family, labels, value) for family, value in values_at(at).items()]
        if name == "shared":
            samples.append(Sample(USED, labels, (ALLOCATED[pod] + CONTEXT) / MIB))
    samples += [Sample("DCGM_FI_DEV_FB_TOTAL", {"UUID": OTHER, **LABELS, "pod": ""}, 81559.0)]
    return samples


def processes_at(at: float) -> list[dict[str, Any]]:
    if phase_at(at)[0] != "shared":
        return []
    return [
        {
            "pid": pid,
            "device_uuid": GPU,
            "memory_bytes": ALLOCATED[pod] + CONTEXT,
            "sm_ratio": 0.48,
            "container": {"pod": pod},
        }
        for pod, pid in PIDS.items()
    ]


def smi_at(at: float) -> SmiLog:
    values = {family: value for family, value in values_at(at).items() if family in OF_SMI}
    is_shared = phase_at(at)[0] == "shared"
    memory_of = {pid: (ALLOCATED[pod] + CONTEXT) / MIB for pod, pid in PIDS.items() if is_shared}
    gpus = {
        GPU: SmiGpu(uuid=GPU, serial="1", labels=LABELS, values=values, memory_of=memory_of),
        OTHER: SmiGpu(uuid=OTHER, serial="2", labels=LABELS, values={"DCGM_FI_DEV_FB_TOTAL": 81559.0}, memory_of={}),
    }
    return SmiLog(driver="580.105.08", gpus=gpus)


OF_SMI = {"DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_TOTAL"}


def moments(edit: Callable[[float, Sample], Sample | None] = lambda _, sample: sample) -> list[Moment]:
    return [
        Moment(
            at=at + 0.1,
            samples=[edited for sample in samples_at(at) if (edited := edit(at, sample)) is not None],
            smi_at=at + 0.4,
            smi=smi_at(at),
            processes=processes_at(at),
        )
        for at in range(83)
    ]


def verdicts_of(run: Run) -> Mapping[str, str]:
    return {row.what: row.verdict for row in judged(run)}


def failing(run: Run) -> set[str]:
    return {what for what, verdict in verdicts_of(run).items() if verdict == "fails"}


def test_a_gpu_that_does_what_the_loads_ask_for_is_right_in_every_row() -> None:
    verdicts = verdicts_of(Run(about(), moments()))
    assert {what: verdict for what, verdict in verdicts.items() if verdict == "fails"} == {}
    for what in (
        "energy counter beside the integral of power",
        "SM active",
        "tensor cores active",
        "bytes copied to the GPU",
        "bytes copied from the GPU",
        "memory of small beside its own word",
        "memory of large beside nvidia-smi",
        "SM time of both",
        "owners of the GPU, shared",
        "owners of the other GPUs",
        "container of the process of large, by its cgroup",
        "memory of the rows of small beside its own word",
        "launches that the CUDA probe counts",
        "values of the other 1 GPUs that agree",
    ):
        assert verdicts[what] == "ok", what


def scaled(family: str, factor: float) -> Callable[[float, Sample], Sample]:
    return lambda _, sample: sample._replace(value=sample.value * factor) if sample.family == family else sample


def of_nobody(name: str) -> Callable[[float, Sample], Sample]:
    def edit(at: float, sample: Sample) -> Sample:
        is_meant = phase_at(at)[0] == name and sample.pod
        return sample._replace(labels={**sample.labels, "pod": ""}) if is_meant else sample

    return edit


@pytest.mark.parametrize(
    ("edit", "fails"),
    [
        (scaled("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1.03), {"energy counter beside the integral of power"}),
        (
            scaled("DCGM_FI_DEV_POWER_USAGE", 1.1),
            {"energy counter beside the integral of power", "DCGM_FI_DEV_POWER_USAGE"},
        ),
        (scaled("DCGM_FI_PROF_SM_ACTIVE", 0.01), {"SM active"}),
        (scaled("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0), {"tensor cores active"}),
        (scaled(RECEIVED, 0.5), {"bytes copied to the GPU"}),
        (scaled(SENT, 1000 / 1024), set()),
        (scaled(SENT, 1.3), {"bytes copied from the GPU"}),
        (
            scaled(USED, 1.0 / 8),
            {f"memory of the rows of {pod} beside {whose}" for pod in PIDS for whose in ("its own word", "nvidia-smi")},
        ),
        (of_nobody("matmul"), {"owners of the GPU, matmul"}),
        (
            lambda at, sample: None if at == 30 and sample.family == "DCGM_FI_DEV_FB_TOTAL" else sample,
            set(),
        ),
        (lambda at, sample: None if at == 30 else sample, {"seconds with a page"}),
        (
            lambda _, sample: None if sample.family == "DCGM_FI_DEV_GPU_UTIL" else sample,
            {"DCGM_FI_DEV_GPU_UTIL"},
        ),
    ],
)
def test_what_is_wrong_fails_in_its_own_row(edit: Callable[[float, Sample], Sample | None], fails: set[str]) -> None:
    assert failing(Run(about(), moments(edit))) == fails


def test_rows_of_a_share_are_no_values_of_the_gpu() -> None:
    def measured(at: float, sample: Sample) -> Sample:
        is_shared = phase_at(at)[0] == "shared"
        return sample._replace(value=48.0) if is_shared and sample.family == "DCGM_FI_DEV_GPU_UTIL" else sample

    assert failing(Run(about(), moments(measured))) == set()


def test_a_gpu_that_is_cut_is_not_compared() -> None:
    def cut(_: float, sample: Sample) -> Sample:
        instance = {"GPU_I_ID": "3"} if sample.labels["UUID"] == OTHER else {}
        return sample._replace(value=1.0, labels={**sample.labels, **instance}) if instance else sample

    verdicts = verdicts_of(Run(about(), moments(cut)))
    assert verdicts["values of the other 1 GPUs that agree"] == "ok"


def test_without_load_or_cgroups_only_the_rest_is_judged() -> None:
    run = Run(about(load="none: there is neither PyTorch nor nvcc", cgroups="no cgroup can be made"), moments())
    verdicts = verdicts_of(run)
    assert verdicts["energy counter beside the integral of power"] == "not judged"
    assert verdicts["containers of processes"] == "not judged"
    assert "SM active" not in verdicts
    assert verdicts["SM active, idle"] == "ok"


def test_launches_are_counted_to_the_one() -> None:
    assert failing(Run(about(probe={"launches": 4321, "counted": 4320}), moments())) == {
        "launches that the CUDA probe counts"
    }
    verdicts = verdicts_of(Run(about(probe={"why_not": "no BPF"}), moments()))
    assert verdicts["launches that the CUDA probe counts"] == "not judged"


def test_cgroups_that_stay_are_a_fault() -> None:
    assert failing(Run(about(left_behind=["/sys/fs/cgroup/kubepods.slice"]), moments())) == {
        "cgroups that were left behind"
    }


def test_a_load_that_fails_is_a_row() -> None:
    content = about()
    content["phases"][1]["failed"] = "the load does not say 'ready': see load-train.log"
    assert failing(Run(content, moments())) == {"load, matmul"}


def test_where_the_exporter_may_not_see_processes_it_says_so() -> None:
    says = "whose processes use the GPUs is not known: /proc does not show the processes of the host"
    seconds = [replace(moment, processes=(), no_processes=says) for moment in moments()]
    (row,) = [row for row in judged(Run(about(cgroups="read-only"), seconds)) if row.what == "memory of processes"]
    assert (row.verdict, row.note) == ("not judged", says)


def test_a_run_without_one_page_fails_and_is_judged() -> None:
    rows = judged(Run(about(), [replace(moment, samples=()) for moment in moments()]))
    assert "seconds with a page" in {row.what for row in rows if row.verdict == "fails"}
    assert judged(Run(about(phases=[], copied=[]), []))
