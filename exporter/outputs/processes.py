"""/processes: the processes on the node's GPUs, with their commands, if the user lets them be shown."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from exporter.lenient import Object
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.model.snapshot import Snapshot, known_devices
from exporter.outputs.output import JSON_FORMAT, Answer, Look, Need, Output, answer, json_refusal
from exporter.ownership.explain import WITHOUT_OWNER

if TYPE_CHECKING:
    from exporter.model.driver import GpuProcess
    from exporter.model.measured import Measured, ProcessPlace, Unowned

_OFF = (
    "--processes.expose is off: command lines may hold secrets, so processes are shown only where it is on, and then to"
    " whoever may ask for metrics (see --web.config.file)"
)
# the sources whose trouble may explain missing processes, in the order in which the output asks them
_SOURCES = ("nvml", "processes")


def rows(snapshot: Snapshot) -> list[Object] | None:
    """An object for each process and device, sorted by GPU, MIG instance and pid; None if processes are not known."""
    measured = snapshot.measured
    if measured is None:
        return None
    index_of = {device.uuid: device.index for device in known_devices(snapshot) if device.index}
    objects: list[Object] = []
    for (_, owner), processes in measured.owned.items():
        objects += (_row(snapshot.node, measured, index_of, process, owner, None) for process in processes)
    for unowned in measured.unowned:
        objects.append(_row(snapshot.node, measured, index_of, unowned.process, unowned.owner, unowned))
    return sorted(objects, key=_order)


def _row(
    node: str,
    measured: "Measured",
    index_of: Mapping[str, str],
    process: "GpuProcess",
    owner: Owner | None,
    unowned: "Unowned | None",
) -> Object:
    """One process on one device; `unowned` is None if it counts for an owner of the device."""
    # another process may have the pid of a process that has ended
    is_gone = unowned is not None and unowned.reason == "gone"
    of_host = measured.host.by_pid.get(process.pid) if measured.host is not None and not is_gone else None
    return {
        "node_name": node,
        "pid": process.pid,
        "command": of_host.command if of_host else "",
        "user": of_host.user if of_host else "",
        **_device(process.device, index_of),
        "container": _container(of_host.place if of_host else None, owner),
        "memory_bytes": process.memory_bytes,
        "sm_ratio": process.sm_ratio,
        "kinds": sorted(process.kinds),
        "reason": unowned.reason if unowned else "",
        "explanation": WITHOUT_OWNER[unowned.reason] if unowned else "",
    }


def _device(device: DeviceKey, index_of: Mapping[str, str]) -> Object:
    names = {"device_uuid": device.uuid, "device_id": index_of.get(device.uuid, "")}
    return {**names, "mig_instance_id": device.instance} if device.instance else names


def _container(place: "ProcessPlace | None", owner: Owner | None) -> Object | None:
    """The known facts about a process' container; None if it is in no container, or nothing is known."""
    names = asdict(owner) if owner else {}
    ids = {"id": place.container_id, "pod_uid": place.pod_uid, "engine": place.engine} if place else {}
    return {**names, **{name: text for name, text in ids.items() if text}} or None


def _order(row: Object) -> tuple[object, ...]:
    index = row["device_id"]
    instance = row.get("mig_instance_id", "")
    return (not index, _number(index), row["device_uuid"], _number(instance), row["pid"])


def _number(text: str) -> tuple[int, str]:
    """A key that sorts numbers in texts by their size: the shorter text is the smaller number."""
    return len(text), text


def _why_not(snapshot: Snapshot) -> str:
    asked = [(name, snapshot.health[name].trouble) for name in _SOURCES if name in snapshot.health]
    troubles = [f"{name}: {trouble}" for name, trouble in asked if trouble]
    return "whose processes use the GPUs is not known: " + (
        "; ".join(troubles) or "NVML has told of none yet; ask again, or see --nvml.mode where its library is not there"
    )


def _make(look: Look) -> Answer:
    if not look.snapshot.context.exposes_processes:
        return json_refusal(_OFF, 403)
    processes = rows(look.snapshot)
    if processes is None:
        return json_refusal(_why_not(look.snapshot), 503)
    return answer(JSON_FORMAT, json.dumps(processes, separators=(",", ":")).encode() + b"\n")


OUTPUT = Output(
    path="/processes",
    says="the processes on the GPUs, as JSON, with --processes.expose",
    make=_make,
    needs=frozenset({Need.NODE, Need.PROCESSES}),
)
