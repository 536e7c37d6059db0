"""When each alert fires, and when it stays quiet: series in promtool's notation, of a sample each minute.

A case of a firing alert has the labels that tell it from others, and how its annotations write `$value`. Quiet cases
are near misses: a value just below, the same for too short a time, rows of several owners, one page of two.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Series = Mapping[str, str]

_OF_NODE = 'node="n",instance="n:9400",exporter="pod-gpu-metrics-exporter"'
_OWN = f'{_OF_NODE},job="gpu-exporter",metrics_path="/metrics"'
_BY_INSTANCE = {"node": "n", "instance": "n:9400"}
_EXPORTER = {"exporter": "pod-gpu-metrics-exporter"}
_OWN_LABELS = {**_BY_INSTANCE, **_EXPORTER, "job": "gpu-exporter", "metrics_path": "/metrics"}
_GPU = f'{_OF_NODE},gpu="0",UUID="GPU-a"'
_BY_GPU = {"node": "n", "gpu": "0", "UUID": "GPU-a"}
_OWNER = 'namespace="ml",pod="p",container="c"'
_OTHER = 'namespace="ml",pod="q",container="c"'
_BY_OWNER = {"namespace": "ml", "pod": "p", "container": "c"}
_ROW = f'{_OWNER},UUID="GPU-a",{_OWN}'
_OF_OTHER = f'{_OTHER},UUID="GPU-a",{_OWN}'
_BY_ROW = {**_BY_OWNER, "UUID": "GPU-a", "node": "n"}
OF_LINKS = (
    "A link had such errors days before it went down. Let no long job begin on the GPU, and have the link looked at."
)
_TWICE = {"node": "n", "problem": "scraped_twice"}
_THERE = {f'pod_gpu_exporter_build_info{{version="1",{_OWN}}}': "1x1500"}


@dataclass(frozen=True, kw_only=True)
class Firing:
    """At a moment an alert fires, with these labels besides its severity, and `value` written as its annotations do.

    Before the time that it waits for has passed, it does not. `annotations` are those that ask for more than labels and
    the value, as a whole.
    """

    at: str
    series: Series
    labels: Mapping[str, str] = field(default_factory=dict)
    value: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Quiet:
    """At a moment the alert does not fire, for all that."""

    at: str
    series: Series


Cases = Mapping[str, Sequence[Firing | Quiet]]


def _own(family: str, labels: str, values: str, *, page: str = "/metrics") -> Series:
    """A family of the exporter's, as one of its two pages has it."""
    job = "gpu" if page == "/gpu/metrics" else "gpu-exporter"
    mark = "," if labels else ""
    return {f'{family}{{{labels}{mark}{_OF_NODE},job="{job}",metrics_path="{page}"}}': values}


_WAITS = "waiting_kernel"
_TRAIN = ',workload_kind="PyTorchJob",workload_name="train"'


def _hang(*nodes: str, of_workload: str = _TRAIN) -> Series:
    """A job with a pod on each node that seems to hang there."""
    suspected = {
        f'pod_gpu_suspected_hang{{namespace="ml",pod="p-{node}",reason="{_WAITS}",node="{node}"{of_workload}}}': "1x30"
        for node in nodes
    }
    return {**_held_on(*nodes, of_workload=of_workload), **suspected}


def _held_on(*nodes: str, of_workload: str = _TRAIN) -> Series:
    """The GPUs of a job with a pod on each node."""
    return {
        f'pod_gpu_allocated_ratio{{namespace="ml",pod="p-{node}",UUID="{gpu}",node="{node}"{of_workload}}}': "1x30"
        for node in nodes
        for gpu in ("GPU-a", "GPU-b")
    }


def _memory(values: str) -> Series:
    """How much the exporter has."""
    return {**_THERE, **_own("process_resident_memory_bytes", "", values)}


def _both(family: str, labels: str, values: str) -> Series:
    """The same on both of them."""
    return {**_own(family, labels, values), **_own(family, labels, values, page="/gpu/metrics")}


def _process(job: str, *, at: str = "n:9400", began: int = 1700000000) -> Series:
    """An exporter, as a job scrapes it under an address."""
    target = f'node="n",instance="{at}",job="{job}"'
    return {
        f"process_start_time_seconds{{{target}}}": f"{began}x30",
        f'pod_gpu_exporter_build_info{{version="1",{target}}}': "1x30",
    }


def _copies(family: str, values: str) -> Series:
    """A sample of dcgm-exporter's, once for each of two owners, as `--sharing copy` has it."""
    return {f"{family}{{{_GPU},{owner}}}": values for owner in (_OWNER, _OTHER)}


def _link(kind: str, values: str, *, link: str = "5", pod: str = "p") -> Series:
    """The errors of a link while a pod holds its GPU, on a node that is older than a day."""
    row = f'namespace="ml",pod="{pod}",container="c",UUID="GPU-a",kind="{kind}",link="{link}",{_OWN}'
    capacity = f'node_gpu_capacity{{model="H100",{_OWN}}}'
    return {f"pod_gpu_link_errors_total{{{row}}}": values, capacity: "8x1600"}


def _new_node() -> Series:
    return {f'node_gpu_capacity{{model="H100",{_OWN}}}': "_x1480 8x120"}


def _failing(node: str, values: str) -> Series:
    """What Prometheus makes of an alert on a GPU that fires."""
    return {f'ALERTS{{alertname="GpuFailing",alertstate="firing",node="{node}",UUID="GPU-a"}}': values}


def _unmatched(reason: str, values: str) -> Series:
    return _own("pod_gpu_exporter_unmatched_devices", f'reason="{reason}"', values)


def _idle(share: float, idle: float, *, since: int = 0) -> Series:
    """A container that holds a share of a GPU from a minute on, and lets it lie idle for a part of the time."""
    none, minutes = f"_x{since} " if since else "", 90 - since
    return {
        f"pod_gpu_allocated_ratio{{{_ROW}}}": f"{none}{share}x{minutes}",
        f"pod_gpu_allocated_seconds_total{{{_ROW}}}": f"{none}0+{60 * share:g}x{minutes}",
        f"pod_gpu_idle_seconds_total{{{_ROW}}}": f"{none}0+{60 * share * idle:g}x{minutes}",
    }


def _stranger(*, memory: str, ratio: str = "") -> Series:
    """A container that uses a GPU which its pod does not hold."""
    values = {"memory_used_bytes": memory, "utilization_ratio": ratio, "processes": "2x40"}
    return {f'pod_gpu_{name}{{holds="false",{_ROW}}}': value for name, value in values.items() if value}


def _throttled(reason: str, seconds_a_minute: str) -> Series:
    """Of two owners, of whom each has half."""
    name = "pod_gpu_throttled_seconds_total"
    return {f'{name}{{reason="{reason}",{row}}}': f"0+{seconds_a_minute}x60" for row in (_ROW, _OF_OTHER)}


def _xid(xid: str, values: str) -> Series:
    return {f'pod_gpu_xid_errors_total{{xid="{xid}",{_ROW}}}': values}


def _grows(family: str, before: int, after: int) -> Series:
    """A counter that grows an hour and a half after the start, whose owner changes a moment later."""
    return {
        f"{family}{{{_GPU},{_OWNER}}}": f"{before}x90 {after}x5 stale",
        f"{family}{{{_GPU},{_OTHER}}}": f"_x96 {after}x30",
    }


EXPORTER: Cases = {
    "PodGpuExporterDown": [
        Firing(at="10m", series=_own("up", "", "1x2 0x20"), labels=_OWN_LABELS),
        Quiet(at="4m", series=_own("up", "", "1x2 0x20")),
        Quiet(at="10m", series=_own("up", "", "1x20")),
        Quiet(at="10m", series={'up{job="kubelet",instance="n:10250",metrics_path="/metrics"}': "0x20"}),
        # issue 15, line 24: whatever the job is called
        Firing(
            at="10m",
            series={'up{job="x/gpu",exporter="pod-gpu-metrics-exporter",metrics_path="/metrics"}': "0x20"},
            labels={**_EXPORTER, "job": "x/gpu", "metrics_path": "/metrics"},
        ),
    ],
    "PodGpuExporterAbsent": [
        Firing(at="20m", series={"up{}": "1x30"}, labels=_EXPORTER | {"metrics_path": "/metrics"}),
        Quiet(at="20m", series=_own("up", "", "1x30")),
        # PodGpuExporterDown tells of each
        Quiet(at="20m", series=_own("up", "", "0x30")),
        # issue 15, line 24: a scrape config without the label by which a dead one is told of
        Firing(at="20m", series={'up{job="gpu"}': "1x30"}, labels=_EXPORTER | {"metrics_path": "/metrics"}),
    ],
    "PodGpuExporterNoGpuMetrics": [
        Firing(
            at="10m",
            series={**_own("up", "", "0x20", page="/gpu/metrics"), **_own("up", "", "1x20")},
            labels={**_OWN_LABELS, "job": "gpu", "metrics_path": "/gpu/metrics"},
        ),
        Quiet(at="10m", series={**_own("up", "", "1x20", page="/gpu/metrics"), **_own("up", "", "1x20")}),
        # then it is the exporter, of which another alert tells
        Quiet(at="10m", series={**_own("up", "", "0x20", page="/gpu/metrics"), **_own("up", "", "0x20")}),
        # dcgm-exporter died with a GPU; another node's does not count
        Quiet(
            at="10m",
            series={**_own("up", "", "0x20", page="/gpu/metrics"), **_own("up", "", "1x20"), **_failing("n", "1x20")},
        ),
        Firing(
            at="10m",
            series={**_own("up", "", "0x20", page="/gpu/metrics"), **_own("up", "", "1x20"), **_failing("m", "1x20")},
            labels={**_OWN_LABELS, "job": "gpu", "metrics_path": "/gpu/metrics"},
        ),
    ],
    # issue 7, line 17; issue 26, "Less in the way"
    "PodGpuExporterSourceTrouble": [
        Firing(
            at="20m",
            series=_both("pod_gpu_exporter_source_up", 'source="dcgm:localhost:9401"', "0x30"),
            labels={**_OWN_LABELS, "source": "dcgm:localhost:9401", "problem": "down"},
        ),
        Quiet(at="20m", series=_both("pod_gpu_exporter_source_up", 'source="dcgm:localhost:9401"', "1x30")),
        Firing(
            at="20m",
            series=_both("pod_gpu_exporter_source_up", 'source="nvml"', "0x30"),
            labels={**_OWN_LABELS, "source": "nvml", "problem": "down"},
        ),
        Quiet(at="20m", series=_both("pod_gpu_exporter_source_up", 'source="nvml"', "1x30")),
        Quiet(at="20m", series=_both("pod_gpu_exporter_source_up", 'source="kubelet"', "0x30")),
        Firing(
            at="20m",
            series=_both("pod_gpu_exporter_source_duration_seconds", 'source="pods"', "4x30"),
            labels={**_OWN_LABELS, "source": "pods", "problem": "slow"},
            value="4s",
        ),
        Quiet(at="20m", series=_both("pod_gpu_exporter_source_duration_seconds", 'source="pods"', "2.9x30")),
        Firing(
            at="60m",
            series=_own("pod_gpu_accounting_gap_seconds_total", 'reason="kubelet"', "0x10 0+8x60"),
            labels={**_BY_INSTANCE, "reason": "kubelet", "problem": "gap"},
            value="4m 0s",
        ),
        Quiet(at="40m", series=_own("pod_gpu_accounting_gap_seconds_total", 'reason="kubelet"', "500x20 620x30")),
    ],
    "PodGpuExporterOwnersStale": [
        Firing(
            at="10m", series=_both("pod_gpu_exporter_assignments_age_seconds", "", "0x2 150x20"), labels=_BY_INSTANCE
        ),
        # it has never answered
        Firing(at="10m", series=_both("pod_gpu_exporter_source_up", 'source="kubelet"', "0x20"), labels=_BY_INSTANCE),
        Quiet(at="10m", series=_both("pod_gpu_exporter_source_up", 'source="kubelet"', "1x6 0x2 1x20")),
        Quiet(at="10m", series=_both("pod_gpu_exporter_source_up", 'source="nvml"', "0x20")),
        Quiet(at="10m", series=_both("pod_gpu_exporter_assignments_age_seconds", "", "110x20")),
        Quiet(at="4m", series=_both("pod_gpu_exporter_assignments_age_seconds", "", "0x2 150x20")),
    ],
    "PodGpuExporterWrongNode": [
        Firing(at="10m", series=_unmatched("other_node", "2x20"), labels=_BY_INSTANCE, value="2"),
        Quiet(at="10m", series=_unmatched("no_sample", "8x20")),
    ],
    # issue 7, line 17
    "PodGpuExporterDeviceUnmatched": [
        Firing(
            at="20m",
            series={
                **_both("pod_gpu_exporter_unmatched_devices", 'reason="no_sample"', "2x30"),
                **_unmatched("ambiguous", "1x30"),
                **_unmatched("other_node", "3x30"),
                **_failing("m", "1x20"),
                f'pod_gpu_device_verdict{{verdict="unknown",reason="unread",{_ROW}}}': "1x30",
                f'pod_gpu_device_verdict{{verdict="ok",{_OF_OTHER.replace("GPU-a", "GPU-b")}}}': "1x30",
            },
            labels=_BY_INSTANCE,
            value="3",
            annotations={
                "description": "Reasons: ambiguous (1) no_sample (2). `pod-gpu-metrics-exporter doctor` and"
                " /debug/mapping name the devices and say what to do. Nobody reads GPU-a, which ml/p holds."
            },
        ),
        Quiet(at="20m", series={**_unmatched("other_node", "2x30"), **_unmatched("no_sample", "_x10 2x20")}),
        # a GPU died, and hours later its pod still holds it, while nothing says any more that it died
        Quiet(at="340m", series={**_unmatched("no_sample", "1x400"), **_failing("n", "1x5 stale")}),
    ],
    # issue 15, line 8; issue 26, "Less in the way"
    "PodGpuExporterMisconfigured": [
        Firing(at="20m", series={**_process("a"), **_process("b")}, labels=_TWICE, value="2"),
        Firing(at="20m", series={**_process("a"), **_process("a", at="10.0.0.1:94")}, labels=_TWICE, value="2"),
        Quiet(at="20m", series=_process("a")),
        # a rollout that has stopped: two processes
        Quiet(at="20m", series={**_process("a"), **_process("a", at="10.0.0.2:9400", began=1700000900)}),
        # other programs of the node
        Quiet(at="20m", series={**_process("a"), 'process_start_time_seconds{node="n",job="node"}': "1700000000x30"}),
        Firing(
            at="40m",
            series=_own("pod_gpu_exporter_pod_label_problems", 'reason="limit"', "3x60"),
            labels={**_OWN_LABELS, "reason": "limit", "problem": "pod_labels_dropped"},
            value="3",
        ),
        Quiet(at="40m", series=_own("pod_gpu_exporter_pod_label_problems", 'reason="limit"', "0x60")),
        Firing(
            at="40m",
            series=_own("pod_gpu_exporter_rejected_lines_total", 'reason="syntax"', "0x9 1x9 2x9 3x9 4x9"),
            labels={**_BY_INSTANCE, "reason": "syntax", "problem": "lines_rejected"},
        ),
        Quiet(at="40m", series=_own("pod_gpu_exporter_rejected_lines_total", 'reason="syntax"', "7x60")),
        Quiet(at="40m", series=_own("pod_gpu_exporter_rejected_lines_total", 'reason="exemplar"', "0+2x60")),
        Firing(
            at="40m",
            series=_own("pod_gpu_exporter_refused_requests_total", 'reason="password"', "0+1x60"),
            labels={**_BY_INSTANCE, "reason": "password", "problem": "requests_refused"},
        ),
        Quiet(at="40m", series=_own("pod_gpu_exporter_refused_requests_total", 'reason="password"', "0+0.5x60")),
        Firing(
            at="420m",
            series={**_THERE, 'pod_gpu_exporter_build_info{version="2",instance="m:9400"}': "1x500"},
            labels={"problem": "versions_differ"},
            value="2",
        ),
        # a rollout that has taken 5 hours
        Quiet(
            at="420m",
            series={**_THERE, 'pod_gpu_exporter_build_info{version="2",instance="m:9400"}': "_x120 1x400"},
        ),
        Quiet(
            at="420m",
            series={
                **_THERE,
                'pod_gpu_exporter_build_info{version="1",instance="m:9400"}': "1x500",
                'pod_gpu_exporter_build_info{version="2",instance="l:9400"}': "1x30",
            },
        ),
    ],
    "PodGpuExporterConfigReloadFailed": [
        Firing(at="10m", series=_own("pod_gpu_exporter_config_reload_success", "", "1x2 0x20"), labels=_OWN_LABELS),
        Quiet(at="10m", series=_own("pod_gpu_exporter_config_reload_success", "", "0x3 1x20")),
    ],
    "PodGpuExporterLimitNear": [
        Firing(
            at="20m",
            series={
                **_own("pod_gpu_exporter_bound_used", 'of="series"', "90x30"),
                **_own("pod_gpu_exporter_bound_limit", 'of="series"', "100x30"),
            },
            labels={**_OWN_LABELS, "of": "series"},
            value="90%",
        ),
        Quiet(
            at="20m",
            series={
                **_own("pod_gpu_exporter_bound_used", 'of="series"', "80x30"),
                **_own("pod_gpu_exporter_bound_limit", 'of="series"', "100x30"),
                **_own("pod_gpu_exporter_bound_used", 'of="pods"', "90x30"),
                **_own("pod_gpu_exporter_bound_limit", 'of="pods"', "4000x30"),
                **_own("pod_gpu_exporter_bound_used", 'of="pods_gone"', "1000x30"),
                **_own("pod_gpu_exporter_bound_limit", 'of="pods_gone"', "1000x30"),
            },
        ),
        Firing(
            at="40m",
            series={
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="0.5"', "0+79x60"),
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="1"', "0+80x60"),
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="+Inf"', "0+80x60"),
            },
            labels={**_BY_INSTANCE, "of": "cpu"},
            value="600ms",
        ),
        Quiet(
            at="40m",
            series={
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="0.1"', "0+98x60"),
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="0.5"', "0+100x60"),
                **_own("pod_gpu_exporter_event_loop_lag_seconds_bucket", 'le="+Inf"', "0+100x60"),
            },
        ),
        Firing(
            at="20m",
            series={**_memory("125829120x30"), **_own("pod_gpu_exporter_memory_limit_bytes", "", "134217728x30")},
            labels={**_OWN_LABELS, "of": "memory"},
            value="93.75%",
        ),
        Quiet(
            at="20m",
            series={**_memory("62914560x30"), **_own("pod_gpu_exporter_memory_limit_bytes", "", "134217728x30")},
        ),
        # issue 22, line 16: a limit that was raised; and none, as of `demo`, where 40 nodes are one process
        Quiet(
            at="20m",
            series={**_memory("125829120x30"), **_own("pod_gpu_exporter_memory_limit_bytes", "", "268435456x30")},
        ),
        Quiet(at="20m", series=_memory("125829120x30")),
    ],
    "PodGpuExporterRestarting": [
        Firing(
            at="50m",
            series={**_THERE, **_own("process_start_time_seconds", "", "1x10 2x10 3x10 4x10 5x20")},
            labels=_OWN_LABELS,
            value="4",
        ),
        Quiet(at="50m", series={**_THERE, **_own("process_start_time_seconds", "", "1x20 2x10 3x30")}),
        # somebody else's program
        Quiet(at="50m", series={'process_start_time_seconds{job="x"}': "1x10 2x10 3x10 4x10 5x20"}),
    ],
    "PodGpuExporterClusterNodeMissing": [
        Firing(
            at="30m",
            series={
                'pod_gpu_exporter_cluster_node_up{node="m",instance="a:9400"}': "1x40",
                'pod_gpu_exporter_cluster_node_up{node="n",instance="a:9400"}': "0x40",
                'pod_gpu_exporter_cluster_node_up{node="n",instance="b:9400"}': "1x40",
            },
            labels={"node": "n"},
        ),
        Quiet(at="30m", series={'pod_gpu_exporter_cluster_node_up{node="n",instance="a:9400"}': "0x9 1x40"}),
        # PodGpuExporterDown tells of it
        Quiet(
            at="30m",
            series={
                'pod_gpu_exporter_cluster_node_up{node="n",instance="a:9400"}': "0x40",
                **_own("up", "", "0x40"),
            },
        ),
    ],
}

GPU: Cases = {
    "GpuHeldIdle": [
        Firing(at="70m", series=_idle(0.25, 1.0), labels=_BY_ROW, value="25%"),
        Quiet(at="70m", series=_idle(1.0, 0.9)),
        Quiet(at="70m", series=_idle(1.0, 1.0, since=20)),
        # nobody holds it
        Quiet(at="70m", series={f"pod_gpu_idle_seconds_total{{{_OWN}}}": "0+60x90"}),
    ],
    "GpuWorkloadSuspectedHang": [
        Firing(
            at="10m",
            series=_hang("m", "n"),
            labels={"namespace": "ml", "workload_kind": "PyTorchJob", "workload_name": "train", "reason": _WAITS},
            value="2",
        ),
        Firing(
            at="10m",
            series=_hang("n", of_workload=""),
            labels={"namespace": "ml", "pod": "p-n", "reason": _WAITS},
            value="1",
        ),
        # the rank of the other node writes a checkpoint
        Quiet(at="10m", series={**_hang("n"), **_held_on("m")}),
        Quiet(at="10m", series=_held_on("m", "n")),
    ],
    "GpuBusyWithoutOwner": [
        Firing(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0.12x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
            },
            labels={"node": "n", "UUID": "GPU-a"},
            value="12%",
        ),
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0.08x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
            },
        ),
        Quiet(
            at="20m",
            series={
                **_copies("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5x30"),
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "2x30",
            },
        ),
        # issue 22, line 1: an allocator's pods hold GPUs of the node, and nobody knows which ones
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0.5x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
                f'pod_gpu_exporter_unmatched_devices{{reason="allocator",{_OWN}}}': "2x30",
            },
        ),
        # whoever uses it is named by another alert; unless that is an agent, which does next to nothing
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0.5x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
                **_stranger(memory="2e9x30", ratio="0.4x30"),
            },
        ),
        Firing(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "0.5x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
                **_stranger(memory="5e8x30", ratio="0.01x30"),
            },
            labels={"node": "n", "UUID": "GPU-a"},
            value="50%",
        ),
        # somebody holds one of its instances
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO{{{_GPU}}}": "0.5x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="mig-parent",{_OWN}}}': "0x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="mig",GPU_I_ID="3",{_OWN}}}': "1x30",
            },
        ),
        # DCGM's value for "not supported"
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{_GPU}}}": "140737488355328x30",
                f'pod_gpu_device_owners{{UUID="GPU-a",entity="gpu",{_OWN}}}': "0x30",
            },
        ),
    ],
    # issue 18, line 4
    "GpuUsedWithoutHolding": [
        Firing(at="20m", series=_stranger(memory="2e9x30", ratio="0x30"), labels=_BY_ROW, value="2"),
        Firing(at="30m", series=_stranger(memory="5e8x40", ratio="0 0.2x40"), labels=_BY_ROW, value="2"),
        # the driver does not say for how long kernels ran (MIG)
        Firing(at="20m", series=_stranger(memory="2e9x30"), labels=_BY_ROW, value="2"),
        Quiet(at="20m", series=_stranger(memory="6e8x30", ratio="0.04x30")),
        Quiet(at="20m", series=_stranger(memory="2e9x5 0x30", ratio="0x40")),
        # the same of who holds it
        Quiet(
            at="20m",
            series={
                series.replace('holds="false",', ""): values
                for series, values in _stranger(memory="2e9x30", ratio="1x30").items()
            },
        ),
    ],
    "GpuProcessesWithoutOwner": [
        Firing(
            at="20m",
            series={f'pod_gpu_processes{{UUID="GPU-a",{_OWN}}}': "3x30"},
            labels={"node": "n", "UUID": "GPU-a"},
            value="3",
        ),
        Quiet(at="20m", series={f"pod_gpu_processes{{{_ROW}}}": "3x30"}),
        Quiet(at="20m", series=_stranger(memory="2e9x30", ratio="1x30")),
    ],
    "GpuModelFull": [
        Firing(
            at="40m",
            series={
                f'node_gpu_capacity{{model="H100",{_OWN}}}': "8x60",
                f'node_gpu_allocated_ratio{{model="H100",{_OWN}}}': "1x60",
                'node_gpu_capacity{model="A100",node="m"}': "8x60",
                'node_gpu_allocated_ratio{model="A100",node="m"}': "0x60",
            },
            labels={"model": "H100"},
            value="100%",
        ),
        Quiet(
            at="40m",
            series={
                f'node_gpu_capacity{{model="H100",{_OWN}}}': "8x60",
                f'node_gpu_allocated_ratio{{model="H100",{_OWN}}}': "1x60",
                'node_gpu_capacity{model="H100",node="m"}': "8x60",
                'node_gpu_allocated_ratio{model="H100",node="m"}': "0.5x60",
            },
        ),
    ],
    "GpuMemoryNearlyFull": [
        Firing(
            at="20m",
            # NVML has measured 10 GB of it for each owner
            series={
                **_copies("DCGM_FI_DEV_FB_FREE", "800x30"),
                **_copies("DCGM_FI_DEV_FB_TOTAL", "80000x30"),
                **_copies("DCGM_FI_DEV_FB_USED", "10000x30"),
            },
            labels=_BY_GPU,
            value="99%",
        ),
        Firing(
            at="20m",
            series={
                f"DCGM_FI_DEV_FB_FREE_BYTES{{{_GPU}}}": "800x30",
                f"DCGM_FI_DEV_FB_USED_BYTES{{{_GPU}}}": "79000x30",
                f"DCGM_FI_DEV_FB_RESERVED_BYTES{{{_GPU}}}": "200x30",
            },
            labels=_BY_GPU,
            value="99%",
        ),
        # what split makes of it: nobody has what is free, two owners have the rest
        Firing(
            at="20m",
            series={
                f"DCGM_FI_DEV_FB_FREE{{{_GPU}}}": "800x30",
                **_copies("DCGM_FI_DEV_FB_TOTAL", "40000x30"),
            },
            labels=_BY_GPU,
            value="99%",
        ),
        Quiet(
            at="20m",
            series={**_copies("DCGM_FI_DEV_FB_FREE", "4000x30"), **_copies("DCGM_FI_DEV_FB_TOTAL", "80000x30")},
        ),
        # of a shared GPU without a total nothing can be said
        Quiet(
            at="20m",
            series={
                f"DCGM_FI_DEV_FB_FREE{{{_GPU}}}": "800x30",
                f"DCGM_FI_DEV_FB_USED{{{_GPU}}}": "0x30",
                f"DCGM_FI_DEV_FB_RESERVED{{{_GPU}}}": "200x30",
                f'DCGM_FI_DEV_FB_USED{{gpu_shared="true",{_GPU},{_OWNER}}}': "79000x30",
            },
        ),
    ],
    "GpuXid": [
        # the first error of a row: increase() cannot see it
        Firing(at="70m", series=_xid("79", "_x60 1x5 stale"), labels={**_BY_ROW, "xid": "79"}),
        Firing(at="70m", series=_xid("48", "1x60 2x30"), labels={**_BY_ROW, "xid": "48"}),
        # issue 22, line 7: nobody's XID has a sentence of its own
        Firing(
            at="70m",
            series={'pod_gpu_xid_errors_total{xid="79",UUID="GPU-a",node="n"}': "_x60 1x5 stale"},
            labels={"node": "n", "UUID": "GPU-a", "xid": "79"},
        ),
        Quiet(at="70m", series={**_xid("79", "1x90"), **_xid("31", "_x20 1x90")}),
    ],
    "GpuThrottled": [
        Firing(
            at="40m",
            series=_throttled("hw_slowdown", "2.1"),
            labels={"node": "n", "UUID": "GPU-a", "reason": "hw_slowdown"},
            value="7%",
        ),
        Firing(
            at="40m",
            series=_throttled("thermal", "2.1"),
            labels={"node": "n", "UUID": "GPU-a", "reason": "thermal"},
            value="7%",
        ),
        Quiet(at="40m", series={**_throttled("power", "30"), **_throttled("low_util", "30")}),
        Quiet(at="40m", series=_throttled("reliability", "1")),
    ],
    "GpuThrottledForPower": [
        Firing(
            at="50m",
            series=_throttled("power", "24"),
            labels={"node": "n", "UUID": "GPU-a"},
            value="80%",
        ),
        Quiet(at="50m", series=_throttled("power", "12")),
    ],
    "GpuHot": [
        Firing(at="20m", series=_copies("DCGM_FI_DEV_GPU_TEMP", "88x30"), labels=_BY_GPU, value="88"),
        Firing(
            at="20m",
            series={
                **_copies("DCGM_FI_DEV_GPU_TEMP", "88x30"),
                f'pod_gpu_device_verdict{{verdict="ok",{_ROW}}}': "1x30",
                f'pod_gpu_device_verdict{{verdict="ok",{_OF_OTHER}}}': "1x30",
            },
            labels=_BY_GPU,
            value="88",
            annotations={
                "description": "GPU-a: near 90 it lowers its clocks, above that it shuts itself down."
                " Held by ml/p ml/q."
            },
        ),
        Firing(at="20m", series=_copies("DCGM_FI_DEV_GPU_TEMP_CELSIUS", "88x30"), labels=_BY_GPU, value="88"),
        Quiet(at="20m", series=_copies("DCGM_FI_DEV_GPU_TEMP", "85x30")),
        Quiet(at="20m", series=_copies("DCGM_FI_DEV_GPU_TEMP", "2147483632x30")),
    ],
    "GpuMemoryHot": [
        Firing(at="20m", series=_copies("DCGM_FI_DEV_MEMORY_TEMP", "98x30"), labels=_BY_GPU, value="98"),
        Quiet(at="20m", series=_copies("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", "90x5 98x5 90x30")),
    ],
    "GpuEccCorrectedMany": [
        Firing(at="100m", series=_grows("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1000, 1150), labels=_BY_GPU, value="150"),
        Quiet(at="100m", series=_grows("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1000, 1050)),
        # the driver was loaded anew
        Quiet(at="100m", series=_grows("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1000, 0)),
    ],
    "GpuRowsRemapped": [
        Firing(
            at="1500m",
            series=_copies("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "1x1440 2x120"),
            labels=_BY_GPU,
            value="1",
        ),
        Quiet(at="1500m", series=_copies("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", "2x1600")),
    ],
    "GpuLinkErrors": [
        Firing(
            at="1530m",
            series={**_link("recovery", "_x1480 1x9 2x9 3x99"), **_link("crc", "_x1480 3x100")},
            labels={"node": "n", "UUID": "GPU-a", "link": "5"},
            annotations={
                "summary": "Link 5 of GPU-a on n has errors; held by nobody",
                "description": f"Within a day: 3 crc 3 recovery. {OF_LINKS}",
            },
        ),
        # of two pods, one after the other; the page has the GPU's sum alone
        Firing(
            at="1530m",
            series={
                **_link("replay", "_x1450 60x20 stale", link=""),
                **_link("replay", "_x1475 45x99", link="", pod="q"),
            },
            labels={"node": "n", "UUID": "GPU-a"},
            annotations={
                "summary": "NVLink of GPU-a on n has errors; held by nobody",
                "description": f"Within a day: 105 replay. {OF_LINKS}",
            },
        ),
        Quiet(at="1530m", series={**_link("recovery", "_x1480 2x120"), **_link("replay", "_x1480 90x120")}),
        # on another link each
        Quiet(at="1530m", series={**_link("recovery", "_x1480 2x120"), **_link("recovery", "_x1480 2x120", link="6")}),
        # of longer ago: the exporter starts anew, and keeps what it counted; it starts anew, and has forgotten it
        Quiet(at="1530m", series=_link("recovery", "7x1490 _x9 7x90")),
        Quiet(at="1530m", series=_link("replay", "700x1490 _x9 1x90")),
        # the node is new to Prometheus
        Quiet(at="1530m", series={**_link("recovery", "_x1480 500x120"), **_new_node()}),
        # PCIe has an alert of its own, and packets are discarded on healthy links, too
        Quiet(at="1530m", series={**_link("pcie_replay", "_x1480 999x90"), **_link("tx_discard", "_x1480 999x90")}),
        # the other end is on a GPU that has died
        Quiet(
            at="1530m",
            series={
                **_link("recovery", "_x1480 50x120"),
                f'pod_gpu_device_verdict{{UUID="GPU-b",verdict="gone",reason="xid",{_OWN}}}': "_x1480 1x40 stale",
            },
        ),
    ],
    "GpuPcieReplays": [
        Firing(at="100m", series=_grows("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 5, 155), labels=_BY_GPU, value="150"),
        Quiet(at="100m", series=_grows("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 5, 65)),
    ],
    "GpuPcieLinkNarrowed": [
        Firing(at="120m", series=_copies("DCGM_FI_DEV_PCIE_LINK_WIDTH", "16x60 8x90"), labels=_BY_GPU, value="8"),
        # it never had more, and could
        Firing(
            at="100m",
            series={
                **_copies("DCGM_FI_DEV_PCIE_LINK_WIDTH", "8x150"),
                f'pod_gpu_device_verdict{{verdict="degraded",reason="pcie-width",{_ROW}}}': "1x150",
            },
            labels=_BY_GPU,
            value="8",
            annotations={
                "description": "GPU-a had more within the last day, or card and slot can do more: copies to and from it"
                " are slower. Held by ml/p."
            },
        ),
        Quiet(at="120m", series=_copies("DCGM_FI_DEV_PCIE_LINK_WIDTH", "8x150")),
        Quiet(at="72m", series=_copies("DCGM_FI_DEV_PCIE_LINK_WIDTH", "16x60 8x90")),
    ],
}
