"""The health of DRA devices by their taints (KEP-5055). Pure.

NVIDIA's DRA driver writes three taints (its cmd/gpu-kubelet-plugin/device_health.go), which stay until it restarts:

- gpu.nvidia.com/xid=<number>, the last XID of the device: NoSchedule, or None for an XID that is a program's fault. It
  is read as an error of that moment, so it ends as errors of the kernel's log do;
- gpu.nvidia.com/gpu-lost, NoSchedule: NVML has said that a GPU is lost, and does not say which one. All devices of the
  node get it;
- gpu.nvidia.com/unmonitored, None: the driver cannot watch the device.

For taints of other drivers, only the effect has a known meaning.

Tests: tests/ownership/test_verdicts.py.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from exporter.model.devices import DeviceKey, Inventory, SliceDevice, Taint
from exporter.model.health import HealthReason, Verdict
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.wording import one_line

_XID, _LOST, _UNMONITORED = (f"gpu.nvidia.com/{name}" for name in ("xid", "gpu-lost", "unmonitored"))
_NUMBER = re.compile(r"[1-9][0-9]{0,2}")
_ASK = "ask who tainted it, and why: kubectl describe resourceslice, and the log of the DRA driver on the node"
EFFECTS: Mapping[str, HealthReason] = {
    "NoExecute": HealthReason("taint", "its DRA driver drives pods away from it", _ASK, "failing"),
    "NoSchedule": HealthReason("taint", "its DRA driver keeps new pods away from it", _ASK, "degraded"),
}
_LOOK = (
    "look at the kernel's log (dmesg | grep -e NVRM -e Xid) and at nvidia-smi on the node; drain the node and"
    " restart it, then restart the DRA driver's pod, which keeps its taints while it runs"
)
ONE_GPU_LOST = HealthReason("taint", "NVIDIA's DRA driver has lost it (gpu-lost)", _LOOK, "gone")
SOME_GPU_LOST = HealthReason(
    "taint", "NVIDIA's DRA driver has lost a GPU of the node, and does not say which (gpu-lost)", _LOOK, "degraded"
)
UNWATCHED = HealthReason(
    "taint",
    "NVIDIA's DRA driver cannot watch it (unmonitored), and no source has read it",
    "let dcgm-exporter or NVML read it (--dcgm.url, --nvml.mode); the DRA driver's log on the node says why it cannot",
    "unknown",
)
TaintsOfDevices = Mapping[DeviceKey, Sequence[Taint]]


def taints_of_devices(
    slices: Iterable[SliceDevice], inventory: Inventory, devices: Container[DeviceKey]
) -> TaintsOfDevices:
    """The taints of these devices, by their keys in samples."""
    cut = {mig.uuid: DeviceKey(uuid=gpu.uuid, instance=mig.instance_id) for gpu in inventory.gpus for mig in gpu.mig}
    taints: dict[DeviceKey, Sequence[Taint]] = {}
    for device in slices:
        key = cut.get(device.uuid, DeviceKey(uuid=device.uuid))
        if device.taints and key in devices:
            taints[key] = device.taints
    return taints


def xids_of_taints(taints: TaintsOfDevices, others: Iterable[DeviceEvent]) -> tuple[DeviceEvent, ...]:
    """The XIDs in taints, without XIDs that are among the `others`, which tell more of them."""
    had = {(other.uuid, other.event.code) for other in others}
    xids: list[DeviceEvent] = []
    for key, taint in _each_taint(taints):
        if taint.key != _XID or not _NUMBER.fullmatch(taint.value):
            continue
        code = int(taint.value)
        if (key.uuid, code) not in had:
            event = KernelEvent(kind="xid", sequence=0, booted_us=0, address="", code=code, instance=key.instance)
            xids.append(DeviceEvent(event=event, at_seconds=taint.added_at, uuid=key.uuid))
    return tuple(xids)


def _each_taint(taints: TaintsOfDevices) -> Iterator[tuple[DeviceKey, Taint]]:
    for key, of_device in taints.items():
        for taint in of_device:
            yield key, taint


def by_taints(taints: TaintsOfDevices, read: Container[DeviceKey]) -> Iterator[tuple[DeviceKey, HealthReason]]:
    """The reasons that taints, except XIDs, give against devices' health.

    `read` are devices that samples or NVML know.
    """
    lost = {key.uuid for key, taint in _each_taint(taints) if taint.key == _LOST}
    for key, taint in _each_taint(taints):
        if taint.key == _LOST and len(lost) == 1:
            yield key, ONE_GPU_LOST
        elif taint.key == _LOST:
            verdict: Verdict = "degraded" if key in read else "unknown"
            yield key, replace(SOME_GPU_LOST, verdict=verdict)
        elif taint.key == _UNMONITORED:
            if key not in read:
                yield key, UNWATCHED
        elif taint.effect in EFFECTS:
            reason = EFFECTS[taint.effect]
            yield key, replace(reason, message=f"{reason.message}: {one_line(f'{taint}')}")
