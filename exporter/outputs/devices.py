"""What every output that lists devices shares: why one has no owner, and who uses it without holding it."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from operator import itemgetter
from typing import Any

from exporter.model.devices import DeviceKey
from exporter.model.snapshot import Snapshot
from exporter.ownership.explain import Explainer


def explainer(snapshot: Snapshot) -> Explainer:
    """Explains devices without samples or without owners."""
    return Explainer(
        snapshot.owners,
        snapshot.joined.subjects if snapshot.joined else (),
        snapshot.context,
        snapshot.inventory,
        kubelet_answered=snapshot.assignments_age_seconds is not None,
    )


def amounts_of(memory_bytes: int | None, sm_ratio: float | None, processes: int | None) -> dict[str, Any]:
    """As fields of an object; what is not known is left out."""
    amounts = {"memory_used_bytes": memory_bytes, "utilization_ratio": sm_ratio, "processes": processes}
    return {name: value for name, value in amounts.items() if value is not None}


def users_of_devices(snapshot: Snapshot) -> Mapping[DeviceKey, list[dict[str, Any]]]:
    """Who uses each device without holding it: pods first, then containers outside pods, then processes in none.

    A process in no container has no other name than its command, which only the user may show (--processes.expose).
    """
    users: defaultdict[DeviceKey, list[dict[str, Any]]] = defaultdict(list)
    measured = snapshot.measured
    if measured is None:
        return users
    for (key, owner), use in sorted(measured.strangers.items(), key=itemgetter(0)):
        users[key].append({**asdict(owner), **amounts_of(use.memory_bytes, use.sm_ratio, use.processes)})
    for each in measured.unowned:
        process, of_host = each.process, measured.host.by_pid.get(each.process.pid) if measured.host else None
        who: dict[str, Any] = {}
        if each.reason == "other_container" and each.place:
            who = {"engine": each.place.engine, "id": each.place.container_id}
        elif each.reason == "no_container" and snapshot.context.exposes_processes and of_host:
            who = {"command": of_host.command, "pid": process.pid}
        if who:
            users[process.device].append({**who, **amounts_of(process.memory_bytes, process.sm_ratio, 1)})
    return users
