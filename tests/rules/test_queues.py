"""What the records say of queues: Kueue's and KAI's quotas, GPUs held and idle, and pods that wait. By promtool."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.rules.shipped import PROMETHEUS, run
from tests.rules.test_records import check_files

pytestmark = pytest.mark.real

FILES = ("recording.yaml", "queues.yaml")
STEADY = "x60"

# Families of Kueue 0.16 and later, with their labels as pkg/metrics/metrics.go has them
OF_KUEUE = {
    "kueue_cluster_queue_nominal_quota": ("cohort", "cluster_queue", "flavor", "resource", "replica_role"),
    "kueue_cluster_queue_resource_reservation": ("cohort", "cluster_queue", "flavor", "resource", "replica_role"),
    "kueue_cluster_queue_resource_usage": ("cohort", "cluster_queue", "flavor", "resource", "replica_role"),
    "kueue_cluster_queue_resource_pending": ("cluster_queue", "resource", "replica_role"),
    "kueue_pending_workloads": ("cluster_queue", "status", "replica_role"),
}
# of KAI's queue-controller, pkg/queuecontroller/metrics/metrics.go, with its default prefix
OF_KAI = {"kai_queue_deserved_gpus": ("queue_name",), "kai_queue_allocated_gpus": ("queue_name",)}
# of kube-state-metrics
OF_PODS = {
    "kube_pod_container_resource_requests": ("namespace", "pod", "uid", "container", "node", "resource", "unit"),
    "kube_pod_status_phase": ("namespace", "pod", "uid", "phase"),
    "kube_pod_created": ("namespace", "pod", "uid"),
}
FAMILIES = OF_KUEUE | OF_KAI | OF_PODS


def series(name: str, *values: str, **more: str) -> str:
    """A series of a family, its labels given in the family's order."""
    labels = {**dict(zip(FAMILIES[name], values, strict=True)), **more}
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{written}}}"


def held(pod: str, uuid: str, queue: str = "", *, part: float = 1.0, instance: str = "") -> dict[str, str]:
    """The accounts of a pod on a GPU, of which it holds a part and uses a half, over half an hour."""
    labels = f'namespace="a",pod="{pod}",container="c",UUID="{uuid}",GPU_I_ID="{instance}",node="n"'
    labels += f',queue="{queue}"' if queue else ""
    rates = {"allocated": part, "active": part / 2, "observed": part, "idle": part / 4}
    counters = {f"pod_gpu_{name}_seconds_total{{{labels}}}": f"0+{30 * rate:g}x60" for name, rate in rates.items()}
    joules = {f"pod_gpu_energy_joules_total{{{labels}}}": f"0+{3000 * part:g}x60"}
    return {f"pod_gpu_allocated_ratio{{{labels}}}": f"{part:g}{STEADY}", **counters, **joules}


def answer(expression: str, **samples: float) -> dict[str, Any]:
    """Samples by the text of their labels, after 20 minutes."""
    return {
        "expr": f"round({expression}, 0.001)",
        "eval_time": "20m",
        "exp_samples": [{"labels": f"{{{labels}}}", "value": value} for labels, value in samples.items()],
    }


# issue 26, "Must show" 3
def test_sums_by_queue_are_those_of_its_pods(promtool: Path, tmp_path: Path) -> None:
    """Whole GPUs, thirds of one and instances of another, in two queues, and one outside any."""
    world = [
        ("whole", "G", "research", 1.0, ""),
        ("third-a", "S", "research", 1 / 3, ""),
        ("third-b", "S", "prod", 1 / 3, ""),
        ("third-c", "S", "", 1 / 3, ""),
        ("small", "M", "prod", 0.125, "7"),
        ("large", "M", "research", 0.5, "1"),
        ("alone", "H", "", 1.0, ""),
    ]
    rows: dict[str, str] = {}
    sums: dict[str, float] = defaultdict(float)
    for pod, uuid, queue, part, instance in world:
        rows |= held(pod, uuid, queue, part=part, instance=instance)
        sums[queue] += part

    def of(factor: float) -> dict[str, float]:
        return {f'queue="{name}"': round(sums[name] * factor, 3) for name in ("prod", "research")}

    answers = [
        answer("queue:pod_gpu_allocated:sum * 1", **of(1)),
        answer("sum by (queue) (queue:pod_gpu_allocated_seconds:rate5m)", **of(1)),
        answer("sum by (queue) (queue:pod_gpu_active_seconds:rate5m)", **of(0.5)),
        answer("sum by (queue) (queue:pod_gpu_idle_seconds:rate5m)", **of(0.25)),
        answer("sum by (queue) (queue:pod_gpu_energy_joules:rate5m)", **of(100)),
        answer(
            "sum(pod:pod_gpu_allocated_seconds:rate5m) - sum(queue:pod_gpu_allocated_seconds:rate5m)",
            **{"": round(sums[""], 3)},
        ),
    ]
    check_files(promtool, tmp_path, rows, *answers, files=FILES)


def test_a_pod_whose_queue_comes_late_counts_once(promtool: Path, tmp_path: Path) -> None:
    """The row without a queue ends as the row with one goes on, after an upgrade of the exporter or of Kueue."""
    labels = 'namespace="a",pod="p",container="c",UUID="G",GPU_I_ID="",node="n"'
    rows = {
        f"pod_gpu_allocated_seconds_total{{{labels}}}": "0+30x20 stale",
        f'pod_gpu_allocated_seconds_total{{{labels},queue="prod"}}': "_x21 630+30x39",
        'node_gpu_capacity{model="H100",node="n"}': "1x60",
    }
    check_files(
        promtool,
        tmp_path,
        rows,
        answer("queue:pod_gpu_allocated_seconds:rate5m * 1", **{'queue="prod"': 1}),
        files=FILES,
    )


def test_kueues_quotas_are_summed_over_flavors_and_not_over_replicas(promtool: Path, tmp_path: Path) -> None:
    rows: dict[str, str] = {}
    for role in ("leader", "follower"):
        for flavor, quota, used in (("h100", 8, 6), ("a100", 4, 1)):
            of_flavor = ("all", "research", flavor, "nvidia.com/gpu", role)
            rows[series("kueue_cluster_queue_nominal_quota", *of_flavor, instance=role)] = f"{quota}{STEADY}"
            rows[series("kueue_cluster_queue_resource_usage", *of_flavor, instance=role)] = f"{used}{STEADY}"
            rows[series("kueue_cluster_queue_resource_reservation", *of_flavor, instance=role)] = f"{used + 1}{STEADY}"
        cpus = ("all", "research", "h100", "cpu", role)
        rows[series("kueue_cluster_queue_nominal_quota", *cpus, instance=role)] = f"512{STEADY}"
        for status, count in (("active", 2), ("inadmissible", 3)):
            of_status = ("research", status, role)
            rows[series("kueue_pending_workloads", *of_status, instance=role)] = f"{count}{STEADY}"
        asked = ("research", "nvidia.com/gpu", role)
        rows[series("kueue_cluster_queue_resource_pending", *asked, instance=role)] = f"16{STEADY}"
    # without a cohort, and of a version before `replica_role`
    rows[
        'kueue_cluster_queue_nominal_quota{cohort="",cluster_queue="prod",flavor="h100",resource="nvidia.com/gpu"}'
    ] = f"2{STEADY}"
    rows |= held("p", "G", "research") | held("q", "H", "prod")
    research = 'cohort="all",queue="research",resource="nvidia.com/gpu"'
    check_files(
        promtool,
        tmp_path,
        rows,
        answer("queue:gpu_quota:sum * 1", **{research: 12, 'queue="prod",resource="nvidia.com/gpu"': 2}),
        answer("queue:gpu_admitted:sum * 1", **{research: 7}),
        answer("queue:gpu_reserved:sum * 1", **{research: 9}),
        answer("sum by (queue, status) (queue:workloads_pending:sum)", **{
            'queue="research",status="active"': 2,
            'queue="research",status="inadmissible"': 3,
        }),
        answer("queue:gpu_pending:sum * 1", **{'queue="research",resource="nvidia.com/gpu"': 16}),
        answer("cohort:gpu_quota:sum * 1", **{'cohort="all",resource="nvidia.com/gpu"': 12}),
        answer("cohort:gpu_admitted:sum * 1", **{'cohort="all",resource="nvidia.com/gpu"': 7}),
        answer("cohort:pod_gpu_allocated:sum * 1", **{'cohort="all"': 1}),
        answer("cohort:pod_gpu_idle_seconds:rate5m * 1", **{'cohort="all"': 0.25}),
        files=FILES,
    )  # fmt: skip


def test_labels_that_kueue_adds_of_workloads_lose_no_workload(promtool: Path, tmp_path: Path) -> None:
    """Its gate CustomMetricLabels divides the pending ones by a label of theirs."""
    rows = {
        series(
            "kueue_pending_workloads", "research", "active", "leader", custom_team=team, instance="x"
        ): f"{count}{STEADY}"
        for team, count in (("a", 2), ("b", 5))
    }
    check_files(
        promtool,
        tmp_path,
        rows,
        answer("sum by (queue) (queue:workloads_pending:sum)", **{'queue="research"': 7}),
        files=FILES,
    )


def test_kais_queues_have_the_same_names(promtool: Path, tmp_path: Path) -> None:
    """A queue without a limit has no quota, and never one of -1."""
    of_controller = {"namespace": "kai-scheduler", "job": "queue-controller", "instance": "10.0.0.1:8080"}
    rows = {
        series("kai_queue_deserved_gpus", "batch", **of_controller): f"6{STEADY}",
        series("kai_queue_allocated_gpus", "batch", **of_controller): f"2.5{STEADY}",
        series("kai_queue_deserved_gpus", "free", **of_controller): f"-1{STEADY}",
        series("kai_queue_allocated_gpus", "free", **of_controller): f"1{STEADY}",
    } | held("p", "G", "batch", part=0.5)
    check_files(
        promtool,
        tmp_path,
        rows,
        answer("queue:gpu_quota:sum * 1", **{'queue="batch",resource="nvidia.com/gpu"': 6}),
        answer("sum by (queue) (queue:gpu_admitted:sum)", **{'queue="batch"': 2.5, 'queue="free"': 1}),
        answer("queue:pod_gpu_allocated:sum * 1", **{'queue="batch"': 0.5}),
        files=FILES,
    )


def test_pods_wait_that_ask_for_gpus_and_are_on_no_node(promtool: Path, tmp_path: Path) -> None:
    rows: dict[str, str] = {}

    def pod(name: str, gpus: int, *, node: str = "", phase: str = "Pending", resource: str = "nvidia_com_gpu") -> None:
        asked = ("ml", name, name, "main", node, resource, "integer")
        rows[series("kube_pod_container_resource_requests", *asked)] = f"{gpus}{STEADY}"
        for other in ("Pending", "Running"):
            rows[series("kube_pod_status_phase", "ml", name, name, other)] = f"{int(other == phase)}{STEADY}"
        rows[series("kube_pod_created", "ml", name, name)] = f"{300 if name == 'eight' else 600}{STEADY}"

    pod("eight", 8)
    pod("one", 1)
    pod("instance", 1, resource="nvidia_com_mig_1g_10gb")
    pod("pulls-its-image", 4, node="n")
    pod("runs", 2, node="n", phase="Running")
    pod("web", 3, resource="cpu")
    check_files(
        promtool,
        tmp_path,
        rows,
        answer("namespace:gpu_waited_for:sum * 1", **{'namespace="ml"': 10}),
        answer("namespace:pods_waiting:sum * 1", **{'namespace="ml"': 3}),
        answer("namespace:gpu_wait_seconds:max * 1", **{'namespace="ml"': 900}),
        files=FILES,
    )


def test_without_queues_nothing_is_recorded(promtool: Path, tmp_path: Path) -> None:
    rows = held("p", "G")
    nothing = [answer(f"{name} * 1") for name in ("queue:pod_gpu_allocated:sum", "queue:pod_gpu_idle_seconds:rate5m")]
    check_files(promtool, tmp_path, rows, *nothing, answer("queue:gpu_quota:sum * 1"), files=FILES)


def test_promtool_takes_the_file(promtool: Path) -> None:
    assert "rules found" in run(promtool, "check", "rules", PROMETHEUS / "rules" / "queues.yaml")
