"""`top --json`: what is shown, for programs. Its names stay as they are; more may come."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from exporter.cli.top.devices import Device, Holder, Shown
from exporter.cli.top.state import State, chosen_devices, chosen_processes


def document(shown: Shown, state: State) -> Mapping[str, Any]:
    """Percent, MiB, W, °C and MHz; null is unknown."""
    found: dict[str, Any] = {
        "exporter": {
            "url": shown.url,
            "version": shown.version,
            "role": shown.role,
            "node": shown.node or None,
            "nodes": shown.nodes,
        },
        "read_at": shown.at or None,
        "error": shown.trouble or None,
        "counts": {**shown.counts, "power_watts": shown.power_watts},
        "sources": [asdict(source) for source in shown.sources],
        "missing_nodes": [asdict(node) for node in shown.missing],
        "devices": [_device(device) for device in chosen_devices(shown.devices, state)],
    }
    if state.view == "processes":
        found["processes"] = [asdict(each) for each in chosen_processes(shown.processes or (), state)]
        found["processes_error"] = shown.processes_trouble or None
    return found


def _device(device: Device) -> Mapping[str, Any]:
    return {
        "node": device.node,
        "gpu": device.index,
        "uuid": device.uuid,
        "entity": device.entity,
        "mig_instance_id": device.instance or None,
        "mig_profile": device.profile or None,
        "mig_instances": device.instances,
        "model": device.model,
        "state": device.state,
        "before": device.is_before,
        "held": device.held,
        "why": device.why or None,
        "shared": device.shared,
        "idle": device.idle,
        "utilization_percent": device.utilization_percent,
        "memory_used_mib": device.memory_used_mib,
        "memory_total_mib": device.memory_total_mib,
        "power_watts": device.power_watts,
        "temperature_celsius": device.temperature_celsius,
        "sm_clock_mhz": device.sm_clock_mhz,
        "dram_active_percent": device.memory_activity_percent,
        "tensor_active_percent": device.tensor_percent,
        "xid": device.xid,
        "owners": [_holder(holder) for holder in device.holders],
    }


def _holder(holder: Holder) -> Mapping[str, Any]:
    return {
        "namespace": holder.namespace,
        "pod": holder.pod,
        "container": holder.container,
        "workload": holder.workload or None,
        "workload_kind": holder.workload_kind or None,
        "utilization_percent": holder.utilization_percent,
        "memory_used_mib": holder.memory_used_mib,
        "measured": holder.measured,
        "idle": holder.idle,
    }
