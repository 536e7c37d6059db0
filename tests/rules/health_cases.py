"""When the alerts on a GPU's verdict fire, and when they stay quiet. See cases.py."""

from tests.rules.cases import Cases, Firing, Quiet, Series

_OWN = 'node="n",instance="n:9400",exporter="pod-gpu-metrics-exporter",job="gpu-exporter",metrics_path="/metrics"'
_DEVICE = {"node": "n", "UUID": "GPU-a"}
_ADVICE = (
    "Take the GPU out of use: drain the node, then reset the GPU or restart the node. The exporter's /events has the"
    " errors, and doctor says what to do about each."
)


def verdict(
    word: str, values: str, *, reason: str = "", pod: str = "p", instance: str = "", uuid: str = "GPU-a", index: int = 0
) -> Series:
    """How a device is, as the exporter's row of a holder has it; `pod` is empty where nobody holds it."""
    owner = f'namespace="ml",pod="{pod}",container="c",' if pod else ""
    of_mig = f'GPU_I_ID="{instance}",' if instance else ""
    labels = f'{owner}UUID="{uuid}",{of_mig}gpu="{index}",verdict="{word}",reason="{reason}"'
    return {f"pod_gpu_device_verdict{{{labels},{_OWN}}}": values}


def _failing(is_gone: bool, holders: str, reasons: str) -> dict[str, str]:
    return {
        "summary": f"GPU-a on n is {'gone' if is_gone else 'failing'}; held by {holders}",
        "description": f"Reason: {reasons}. {_ADVICE}",
    }


def _degraded(holders: str, reasons: str) -> dict[str, str]:
    return {
        "summary": f"GPU-a on n works, but not as it should; held by {holders}",
        "description": f"Reason: {reasons}. Plan a reset or a repair; doctor says what to do about each.",
    }


def _capacity(values: str, model: str = "H100") -> Series:
    return {f'node_gpu_capacity{{model="{model}",{_OWN}}}': values}


_GONE = (
    "A GPU has fallen off the bus, the driver does not see it any more, or it was taken out. The kernel's log has more."
)
_WELL = verdict("ok", "1x10 stale")
_THERE = {f'pod_gpu_exporter_build_info{{version="1",{_OWN}}}': "1x150"}

HEALTH: Cases = {
    "GpuFailing": [
        Firing(
            at="11m",
            series={**_WELL, **verdict("failing", "_x11 1x20", reason="xid")},
            labels=_DEVICE,
            annotations=_failing(False, "ml/p", "xid"),
        ),
        # issue 22, line 33: DCGM's own verdict
        Firing(
            at="11m",
            series={**_WELL, **verdict("failing", "_x11 1x20", reason="dcgm-row-remap-failure")},
            labels=_DEVICE,
            annotations=_failing(False, "ml/p", "dcgm-row-remap-failure"),
        ),
        # one alert for all who share it, and for all its instances
        Firing(
            at="11m",
            series={
                **verdict("gone", "_x11 1x20", reason="fell-off-bus"),
                **verdict("gone", "_x11 1x20", reason="fell-off-bus", pod="q"),
            },
            labels=_DEVICE,
            annotations=_failing(True, "ml/p ml/q", "fell-off-bus"),
        ),
        Firing(
            at="11m",
            series={
                **verdict("failing", "_x11 1x20", reason="ecc", pod=""),
                **verdict("failing", "_x11 1x20", reason="ecc", instance="3"),
                **verdict("gone", "_x11 1x20", reason="kubelet", pod="q", instance="5"),
            },
            labels=_DEVICE,
            annotations=_failing(True, "ml/p ml/q", "ecc kubelet"),
        ),
        # issue 30, "Must show" 3: who held it then, when its pod has gone and the next one has come
        Firing(
            at="40m",
            series={
                **verdict("failing", "_x11 1x4 stale", reason="xid"),
                **verdict("failing", "_x16 1x4 stale", reason="xid", pod=""),
                **verdict("failing", "_x21 1x40", reason="xid", pod="next"),
            },
            labels=_DEVICE,
            annotations=_failing(False, "ml/p", "xid"),
        ),
        # its pod went with it
        Firing(
            at="20m",
            series={**_WELL, **verdict("gone", "_x11 1x20", reason="nvml-lost", pod="")},
            labels=_DEVICE,
            annotations=_failing(True, "ml/p", "nvml-lost"),
        ),
        # nobody held it; the exporter starts anew
        Firing(
            at="24m",
            series=verdict("gone", "1x20 stale", reason="nvml-lost", pod=""),
            labels=_DEVICE,
            annotations=_failing(True, "nobody", "nvml-lost"),
        ),
        # another cause, and another one
        Firing(
            at="30m",
            series={
                **verdict("failing", "1x20 stale", reason="xid"),
                **verdict("gone", "_x21 1x20", reason="fell-off-bus"),
            },
            labels=_DEVICE,
            annotations=_failing(True, "ml/p", "fell-off-bus"),
        ),
        Quiet(
            at="20m",
            series={
                **verdict("ok", "1x30"),
                **verdict("degraded", "1x30", reason="hot", uuid="GPU-b"),
                **verdict("unknown", "1x30", reason="unread", uuid="GPU-c"),
            },
        ),
        # it was reset
        Quiet(at="30m", series={**verdict("failing", "1x20 stale", reason="xid"), **verdict("ok", "_x21 1x20")}),
    ],
    "GpuDegraded": [
        Firing(
            at="20m",
            series={
                **verdict("degraded", "1x30", reason="row-remap-pending"),
                **verdict("degraded", "1x30", reason="row-remap-pending", pod="q"),
            },
            labels=_DEVICE,
            annotations=_degraded("ml/p ml/q", "row-remap-pending"),
        ),
        # it comes and goes
        Firing(
            at="30m",
            series={**verdict("degraded", "1 _ _ 1x20 _ _ 1x40", reason="hot", pod="")},
            labels=_DEVICE,
            annotations=_degraded("nobody", "hot"),
        ),
        # another GPU of the node is failing: of this one's links nobody is told, of its memory somebody is
        Quiet(
            at="30m",
            series={
                **verdict("degraded", "1x40", reason="xid"),
                **verdict("gone", "1x40", reason="fell-off-bus", uuid="GPU-b"),
            },
        ),
        Firing(
            at="30m",
            series={
                **verdict("degraded", "1x40", reason="row-remap-pending"),
                **verdict("gone", "1x40", reason="fell-off-bus", uuid="GPU-b"),
            },
            labels=_DEVICE,
            annotations=_degraded("ml/p", "row-remap-pending"),
        ),
        # GpuFailing tells of it
        Quiet(
            at="30m",
            series={
                **verdict("degraded", "1x40", reason="hot", instance="3"),
                **verdict("failing", "1x40", reason="ecc", pod="q", instance="5"),
            },
        ),
        Quiet(at="30m", series={**verdict("degraded", "1x5 stale", reason="hot"), **verdict("ok", "_x6 1x40")}),
        # issue 22, line 33: DCGM's own verdict
        Firing(
            at="20m",
            series={**verdict("degraded", "1x30", reason="dcgm-pending-page-retirements")},
            labels=_DEVICE,
            annotations=_degraded("ml/p", "dcgm-pending-page-retirements"),
        ),
        # it says these of GPUs at full load, and for good of those whose program had an error
        Quiet(
            at="30m",
            series={
                **verdict("degraded", "1x40", reason="dcgm-clocks-event-power"),
                **verdict("degraded", "1x40", reason="dcgm-xid-error", uuid="GPU-b"),
            },
        ),
        # one replay of a link: GpuLinkErrors counts them; on Hopper DCGM goes on for good
        Quiet(at="30m", series=verdict("degraded", "1x60", reason="nvlink")),
        Quiet(at="30m", series=verdict("degraded", "1x60", reason="dcgm-nvlink-error-critical")),
        # the neighbours of a dead GPU
        Quiet(
            at="30m",
            series={
                **verdict("degraded", "1x40", reason="dcgm-nvlink-error-threshold"),
                **verdict("failing", "1x40", reason="dcgm-fallen-off-bus", uuid="GPU-b"),
            },
        ),
    ],
    "GpuGone": [
        # it is missing on the page: whose it is
        Firing(
            at="25m",
            series={
                **_WELL,
                **verdict("ok", "_x11 1x1 stale", pod=""),
                **verdict("unknown", "_x13 1x20", reason="missing", pod=""),
            },
            labels=_DEVICE,
            annotations={"summary": "GPU-a on n is not there any more; held by ml/p", "description": _GONE},
        ),
        Firing(
            at="15m",
            series={
                **verdict("unknown", "1x20", reason="missing", pod=""),
                f'node_gpu_capacity{{model="H100",{_OWN}}}': "7x20",
                **_THERE,
            },
            labels=_DEVICE,
            annotations={"summary": "GPU-a on n is not there any more; held by nobody", "description": _GONE},
        ),
        Firing(
            at="80m",
            series={**_THERE, **_capacity("8x60 7x60")},
            labels={"node": "n"},
            annotations={"summary": "n has 1 GPUs fewer than it had", "description": _GONE},
        ),
        # another alert told of one of two
        Firing(
            at="110m",
            series={**_THERE, **_capacity("8x60 7x20 6x90"), **verdict("gone", "_x60 1x10 stale", reason="nvml-lost")},
            labels={"node": "n"},
            annotations={"summary": "n has 1 GPUs fewer than it had", "description": _GONE},
        ),
        Quiet(
            at="110m",
            series={**_THERE, **_capacity("8x60 7x120"), **verdict("gone", "_x60 1x10 stale", reason="nvml-lost")},
        ),
        Quiet(
            at="85m",
            series={**_THERE, **_capacity("8x60 7x120"), **verdict("gone", "_x60 1x60", reason="nvml-lost")},
        ),
        # the exporter has started anew, and its pod holds it still
        Firing(
            at="80m",
            series={**_THERE, **_capacity("8x60 7x60"), **verdict("unknown", "_x61 1x60", reason="unread")},
            labels={"node": "n"},
            annotations={
                "summary": "n has 1 GPUs fewer than it had",
                "description": f"{_GONE} Nobody reads GPU-a, which ml/p holds.",
            },
        ),
        Quiet(at="66m", series={**_THERE, **_capacity("8x60 7x60")}),
        Quiet(
            at="80m",
            series={
                **verdict("unknown", "_x60 1x60", reason="unread"),
                **verdict("unknown", "_x60 1x60", reason="missing", instance="3"),
                **verdict("degraded", "_x60 1x60", reason="hot", uuid="GPU-b"),
            },
        ),
        # the driver is gone with all of them
        Firing(
            at="80m",
            series={**_THERE, **_capacity("8x60 stale")},
            labels={"node": "n"},
            annotations={"summary": "n has 8 GPUs fewer than it had", "description": _GONE},
        ),
        Quiet(at="80m", series={**_THERE, **_capacity("8x120")}),
        # the node is gone with its exporter
        Quiet(
            at="80m",
            series={**dict.fromkeys(_THERE, "1x60 stale"), **_capacity("8x60 stale")},
        ),
        # a driver that names the model otherwise
        Quiet(
            at="80m",
            series={**_THERE, **_capacity("8x60 stale"), **_capacity("_x61 8x60", model="NVIDIA H100")},
        ),
        # six hours later
        Quiet(at="480m", series={**dict.fromkeys(_THERE, "1x600"), **_capacity("8x60 7x500")}),
    ],
    "GpuHeldWhileFailing": [
        Firing(
            at="10m",
            series={
                **verdict("failing", "1x20", reason="ecc"),
                **verdict("failing", "1x20", reason="ecc", pod="", uuid="GPU-b"),
            },
            labels={**_DEVICE, "namespace": "ml", "pod": "p"},
        ),
        Firing(
            at="10m",
            series=verdict("unknown", "1x20", reason="missing"),
            labels={**_DEVICE, "namespace": "ml", "pod": "p"},
        ),
        Quiet(at="10m", series={**verdict("degraded", "1x20", reason="hot"), **verdict("gone", "1x20", pod="")}),
    ],
    "GpuHealthUnknown": [
        Firing(
            at="40m",
            series={
                **verdict("unknown", "1x60", reason="not-offered"),
                **verdict("unknown", "1x60", reason="not-offered", pod="q"),
                **verdict("unknown", "1x60", reason="unread", uuid="GPU-b"),
                # GpuGone tells of it
                **verdict("unknown", "1x60", reason="missing", uuid="GPU-c"),
            },
            labels={"node": "n"},
            value="2",
        ),
        Quiet(at="40m", series={**verdict("unknown", "1x20 stale", reason="unread"), **verdict("ok", "_x21 1x60")}),
    ],
}
