"""A node of four GPUs as Prometheus sees it, well and with a GPU that dies: series a minute, and what must fire then.

A pod holds each GPU; GPU-3 dies at `DIES`. Every alert of the rules that is not listed must be quiet.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.rules.cases import Series
from tests.rules.health_cases import verdict

NODE, DEAD, GPUS = "n", "GPU-3", 4
DIES, LASTS = 30, 95  # minutes
_OF_NODE = f'node="{NODE}",instance="n:9400",exporter="pod-gpu-metrics-exporter"'
_OWN = f'{_OF_NODE},job="gpu-exporter",metrics_path="/metrics"'
_JOINED = f'{_OF_NODE},job="gpu",metrics_path="/gpu/metrics"'
_BUILD = f'pod_gpu_exporter_build_info{{version="1",revision="r",{_OWN}}}'
_UP, _PAGE_UP = f"up{{{_OWN}}}", f"up{{{_JOINED}}}"
_CAPACITY = f'node_gpu_capacity{{model="H100",{_OWN}}}'
_DCGM, _NVML = (f'pod_gpu_exporter_source_up{{source="{name}",{_OWN}}}' for name in ("dcgm:localhost:9401", "nvml"))
_UNMATCHED = f'pod_gpu_exporter_unmatched_devices{{reason="no_sample",{_OWN}}}'
_GAP = f'pod_gpu_accounting_gap_seconds_total{{reason="page",{_OWN}}}'
_ALWAYS = f"1x{LASTS}"
_BEFORE, _AFTER = f"1x{DIES - 1} stale", f"_x{DIES} 1x{LASTS - DIES}"
_FALLS, _RISES = f"1x{DIES - 1} 0x{LASTS - DIES}", f"0x{DIES - 1} 1x{LASTS - DIES}"


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What fires at a minute: the labels of each alert besides its name and severity, by name."""

    minute: int
    firing: Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(frozen=True, kw_only=True)
class History:
    """A node, and what fires when. `page` is the only alert that may wake somebody; "" where none may."""

    series: Series
    moments: Sequence[Moment]
    page: str = "GpuFailing"


def _gpu(number: int, pod: str, of_dcgm: str, of_verdict: str) -> Series:
    uuid = f"GPU-{number}"
    row = f'namespace="ml",pod="{pod}",container="c",UUID="{uuid}",{_OWN}'
    sample = f'namespace="ml",pod="{pod}",container="c",UUID="{uuid}",gpu="{number}",{_JOINED}'
    return {
        **verdict("ok", of_verdict, pod=pod, uuid=uuid, index=number),
        f"pod_gpu_allocated_ratio{{{row}}}": _ALWAYS,
        f"pod_gpu_allocated_seconds_total{{{row}}}": f"0+60x{LASTS}",
        f"pod_gpu_active_seconds_total{{{row}}}": f"0+54x{LASTS}",
        f"pod_gpu_idle_seconds_total{{{row}}}": f"0+6x{LASTS}",
        f'pod_gpu_throttled_seconds_total{{{row},reason="thermal"}}': f"0x{LASTS}",
        f'pod_gpu_device_owners{{UUID="{uuid}",entity="gpu",{_OWN}}}': of_dcgm,
        f"DCGM_FI_DEV_GPU_TEMP{{{sample}}}": of_dcgm.replace("1x", "60x"),
        f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{sample}}}": of_dcgm.replace("1x", "0.9x"),
        f"DCGM_FI_DEV_FB_FREE{{{sample}}}": of_dcgm.replace("1x", "9000x"),
        f"DCGM_FI_DEV_FB_TOTAL{{{sample}}}": of_dcgm.replace("1x", "80000x"),
        f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{sample}}}": of_dcgm.replace("1x", "0x"),
    }


def _node(*, dead: bool = True, dcgm: str = _ALWAYS, of_verdicts: str = _ALWAYS, holders: Sequence[str] = ()) -> Series:
    """The node; with `dead`, the samples and the verdict `ok` of GPU-3 end when it dies."""
    found: dict[str, str] = {
        _BUILD: _ALWAYS,
        _UP: _ALWAYS,
        _PAGE_UP: _ALWAYS,
        _DCGM: _ALWAYS,
        _NVML: _ALWAYS,
        f'pod_gpu_exporter_source_up{{source="kubelet",{_OWN}}}': _ALWAYS,
        f"pod_gpu_exporter_assignments_age_seconds{{{_OWN}}}": f"0.5x{LASTS}",
        f"pod_gpu_exporter_config_reload_success{{{_OWN}}}": _ALWAYS,
        f"process_start_time_seconds{{{_OWN}}}": f"1700000000x{LASTS}",
        f"process_resident_memory_bytes{{{_OWN}}}": f"62914560x{LASTS}",
        f"pod_gpu_exporter_memory_limit_bytes{{{_OWN}}}": f"134217728x{LASTS}",
        f'pod_gpu_exporter_cluster_node_up{{node="{NODE}",instance="c:9400"}}': _ALWAYS,
        f'node_gpu_allocated_ratio{{model="H100",{_OWN}}}': f"0.9x{LASTS}",
        _CAPACITY: f"{GPUS}x{DIES - 1} {GPUS - 1}x{LASTS - DIES}" if dead else f"{GPUS}x{LASTS}",
        _GAP: f"0x{LASTS}",
    }
    for number in range(GPUS):
        dies = dead and f"GPU-{number}" == DEAD
        for pod in (dies and holders) or (f"pod-{number}",):
            found |= _gpu(number, pod, _BEFORE if dies else dcgm, _BEFORE if dies else of_verdicts)
    return found


def _xid(pod: str = "pod-3") -> Series:
    row = f'namespace="ml",pod="{pod}",container="c",UUID="{DEAD}",{_OWN}'
    return {f'pod_gpu_xid_errors_total{{xid="79",{row}}}': _AFTER}


_OF_GPU = {"node": NODE, "UUID": DEAD}
_FAILING = {"GpuFailing": [_OF_GPU]}
_OF_XID = {"GpuXid": [{**_OF_GPU, "namespace": "ml", "pod": "pod-3", "container": "c", "xid": "79"}]}
_TARGET = {"node": NODE, "instance": "n:9400", "exporter": "pod-gpu-metrics-exporter"}
_OF_PAGE = {**_TARGET, "job": "gpu", "metrics_path": "/gpu/metrics"}
_OF_OWN = {**_TARGET, "job": "gpu-exporter", "metrics_path": "/metrics"}
_DOWN = {**_OF_OWN, "problem": "down"}
_NVML_DOWN = {"PodGpuExporterSourceTrouble": [{**_DOWN, "source": "nvml"}]}
_PAGE_DOWN = {**_DOWN, "source": "dcgm:localhost:9401"}
_GAP_OF_PAGE = {"node": NODE, "instance": "n:9400", "reason": "page", "problem": "gap"}
_PAGE_TROUBLE = {"PodGpuExporterSourceTrouble": [_PAGE_DOWN, _GAP_OF_PAGE]}
_UNKNOWN = {"GpuHealthUnknown": [{"node": NODE}]}


def _held_by(*pods: str) -> dict[str, list[dict[str, str]]]:
    return {"GpuHeldWhileFailing": [{**_OF_GPU, "namespace": "ml", "pod": pod} for pod in pods]}


def _later(firing: Mapping[str, Sequence[Mapping[str, str]]], *minutes: int) -> list[Moment]:
    return [Moment(minute=minute, firing=firing) for minute in minutes]


_DIES_WITH_IT = {_PAGE_UP: _FALLS, _DCGM: _FALLS, _GAP: f"0x{DIES - 1} 0+60x{LASTS - DIES}"}
HISTORIES: Mapping[str, History] = {
    "a healthy hour and a half": History(series=_node(dead=False), moments=_later({}, 1, 20, 60, 95), page=""),
    # its pod holds it for half an hour more, and another pod gets it by mistake
    "by the kernel's log": History(
        series={
            **_node(),
            **_xid(),
            **verdict("gone", f"_x{DIES} 1x29 stale", reason="fell-off-bus", pod="pod-3", uuid=DEAD, index=3),
            **verdict("gone", "_x60 1x9 stale", reason="fell-off-bus", pod="", uuid=DEAD, index=3),
            **verdict("gone", "_x70 1x40", reason="fell-off-bus", pod="next", uuid=DEAD, index=3),
            _UNMATCHED: f"_x{DIES} 1x29 stale",
        },
        moments=[
            *_later({}, 29),
            *_later({**_FAILING, **_OF_XID, **_held_by("pod-3")}, 30, 40),
            *_later({**_FAILING, **_held_by("pod-3")}, 50, 59),
            *_later(_FAILING, 65),
            *_later({**_FAILING, **_held_by("next")}, 75),
        ],
    ),
    # its pod has ended with it; hours later nothing says any more why it is missing
    "by NVML": History(
        series={
            **_node(),
            **verdict("gone", f"_x{DIES} 1x20 stale", reason="nvml-lost", pod="", uuid=DEAD, index=3),
            _NVML: _FALLS,
        },
        moments=[
            *_later(_FAILING, 31, 40),
            *_later({**_FAILING, **_NVML_DOWN}, 46, 54),
            *_later(_NVML_DOWN, 60, 75),
        ],
    ),
    # nothing says why: it is not on dcgm-exporter's page any more
    "by dcgm-exporter's page alone": History(
        series={
            **_node(),
            **verdict("unknown", f"_x{DIES + 2} 1x90", reason="missing", pod="pod-3", uuid=DEAD, index=3),
            _UNMATCHED: _AFTER,
        },
        moments=[
            *_later({}, 29),
            *_later(_held_by("pod-3"), 32, 41),
            *_later({"GpuGone": [_OF_GPU], **_held_by("pod-3")}, 42, 46, 61, 75),
        ],
        page="GpuGone",
    ),
    # the exporter starts anew then, and does not know of it any more; its pod holds it still
    "and the exporter forgets": History(
        series={
            **_node(),
            **verdict("unknown", _AFTER, reason="unread", pod="pod-3", uuid=DEAD, index=3),
            _UNMATCHED: _AFTER,
        },
        moments=[
            *_later({}, 39),
            *_later({"GpuGone": [{"node": NODE}]}, 40, 46, 58),
            *_later({"GpuGone": [{"node": NODE}], **_UNKNOWN}, 61, 75),
        ],
        page="GpuGone",
    ),
    # and counts it all the same, since its pod holds it
    "and is counted as held": History(
        series={
            **_node(),
            _CAPACITY: f"{GPUS}x{LASTS}",
            **verdict("unknown", _AFTER, reason="unread", pod="pod-3", uuid=DEAD, index=3),
            _UNMATCHED: _AFTER,
        },
        moments=[
            *_later({}, 44),
            *_later({"PodGpuExporterDeviceUnmatched": [{"node": NODE, "instance": "n:9400"}]}, 46, 58),
            *_later({"PodGpuExporterDeviceUnmatched": [{"node": NODE, "instance": "n:9400"}], **_UNKNOWN}, 61, 75),
        ],
        page="PodGpuExporterDeviceUnmatched",
    ),
    "with dcgm-exporter, by the kernel's log": History(
        series={
            **_node(dcgm=_BEFORE),
            **_DIES_WITH_IT,
            _CAPACITY: f"{GPUS}x{LASTS}",
            **_xid(),
            **verdict("gone", _AFTER, reason="fell-off-bus", pod="pod-3", uuid=DEAD, index=3),
        },
        moments=[
            *_later({**_FAILING, **_OF_XID, **_held_by("pod-3")}, 30, 33),
            *_later({**_FAILING, **_OF_XID, **_held_by("pod-3")}, 40),
            *_later({**_FAILING, **_held_by("pod-3"), **_PAGE_TROUBLE}, 50, 75),
        ],
    ),
    "with dcgm-exporter, and nobody says why": History(
        series={
            **_node(dcgm=_BEFORE, of_verdicts=_BEFORE),
            **_DIES_WITH_IT,
            _CAPACITY: f"{GPUS}x{LASTS}",
            **{
                series: _AFTER
                for number in range(GPUS)
                for series in verdict(
                    "unknown", "", reason="unread", pod=f"pod-{number}", uuid=f"GPU-{number}", index=number
                )
            },
        },
        moments=[
            *_later({}, 33),
            *_later({"PodGpuExporterNoGpuMetrics": [_OF_PAGE]}, 36, 44),
            *_later({"PodGpuExporterNoGpuMetrics": [_OF_PAGE], **_PAGE_TROUBLE}, 50, 58),
            *_later({"PodGpuExporterNoGpuMetrics": [_OF_PAGE], **_PAGE_TROUBLE, **_UNKNOWN}, 61, 75),
        ],
        page="PodGpuExporterNoGpuMetrics",
    ),
    # the GPU's row, nobody's, and those of its instances; another cause is seen later
    "cut into MIG instances": History(
        series={
            **_node(holders=("a", "b")),
            **verdict("failing", f"_x{DIES} 1x9 stale", reason="xid", pod="", uuid=DEAD, index=3),
            **verdict("failing", f"_x{DIES} 1x9 stale", reason="xid", pod="a", instance="1", uuid=DEAD, index=3),
            **verdict("failing", f"_x{DIES} 1x9 stale", reason="xid", pod="b", instance="2", uuid=DEAD, index=3),
            **verdict("gone", "_x40 1x90", reason="fell-off-bus", pod="", uuid=DEAD, index=3),
            **verdict("gone", "_x40 1x90", reason="fell-off-bus", pod="a", instance="1", uuid=DEAD, index=3),
            **verdict("gone", "_x40 1x90", reason="fell-off-bus", pod="b", instance="2", uuid=DEAD, index=3),
            _UNMATCHED.replace("no_sample", "mig_unresolved"): _AFTER.replace("1x", "2x"),
        },
        moments=_later({**_FAILING, **_held_by("a", "b")}, 30, 39, 41, 60, 75),
    ),
    # its neighbours lose their NVLinks to it
    "and its neighbours see errors": History(
        series={
            **_node(of_verdicts=_BEFORE),
            **verdict("gone", _AFTER, reason="fell-off-bus", pod="pod-3", uuid=DEAD, index=3),
            **{
                series: _AFTER
                for number in range(GPUS)
                if f"GPU-{number}" != DEAD
                for series in verdict(
                    "degraded", "", reason="xid", pod=f"pod-{number}", uuid=f"GPU-{number}", index=number
                )
            },
        },
        moments=_later({**_FAILING, **_held_by("pod-3")}, 31, 50, 75),
    ),
    # four containers, of which one goes on using another GPU
    "shared by several": History(
        series={
            **_node(holders=("a", "b", "c", "d")),
            **_xid(""),
            **{
                series: _AFTER
                for pod in "abcd"
                for series in verdict("gone", "", reason="fell-off-bus", pod=pod, uuid=DEAD, index=3)
            },
            _UNMATCHED: _AFTER.replace("1x", "4x"),
        },
        moments=[
            *_later({**_FAILING, **_held_by(*"abcd")}, 50, 75),
        ],
    ),
    "with the whole node": History(
        series={
            **dict.fromkeys(_node(dead=False), _BEFORE),
            _UP: _FALLS,
            _PAGE_UP: _FALLS,
            f'pod_gpu_exporter_cluster_node_up{{node="{NODE}",instance="c:9400"}}': _FALLS,
        },
        moments=_later({"PodGpuExporterDown": [_OF_OWN]}, 36, 60, 75),
        page="PodGpuExporterDown",
    ),
}
