"""The rows of /container/metrics, one for each device (a GPU or a MIG instance) and container that holds it.

They are the node's devices and their owners, by the kubelet, the inventory and the samples of any family. Their fields
are filled with the rows of the joined page, so both agree: `--sharing` decides about the rows of a shared device, and
about their values. The page for people shows the same objects.

Tests: tests/outputs/test_containers.py.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import itemgetter

from exporter.dcgm.fields import FIELDS, METRICS
from exporter.dcgm.xids import error_on_page
from exporter.dividing.decimals import number
from exporter.dividing.instances import is_repeated
from exporter.lenient import Object
from exporter.model.device_row import DeviceRow, DeviceUser, OwnUse, WholeDevice, in_its_state
from exporter.model.devices import DeviceKey, Since
from exporter.model.grants import Grant
from exporter.model.measured import Measured, Unowned, Use
from exporter.model.node_answers import OWN_FAMILIES
from exporter.model.nothing import NOTHING
from exporter.model.pages import Cell, JoinedPage, Row, Subject, cut_gpus, object_of
from exporter.model.pods import Owner
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import KUBELET, Snapshot, attributed, known_devices
from exporter.model.states import rfc3339
from exporter.outputs.cuda_use import as_object
from exporter.ownership.explain import Explainer, is_kubelet_silent
from exporter.ownership.queues import queue_among

# The fields for which an autoscaler may ask.
METRICS_TO_ASK = (*METRICS, *OWN_FAMILIES.values())
_FIELD_OF = {name.encode(): field for name, field in FIELDS.items() if field.json}
_FAMILIES = frozenset(_FIELD_OF)
# what rows of a shared device may have their owners' parts of, and rows of MIG instances their GPU's
_WHOLE_FAMILIES = frozenset(name for name, field in _FIELD_OF.items() if field.json in WholeDevice._fields)
_OWNER = itemgetter(0)
_DEVICES_A_SLICE = 200
_NOBODY = Owner(namespace="", pod="", container="")
# the reason why no device has an owner while the kubelet's last answer is too old
SILENT = "The kubelet does not say who holds devices."


@dataclass(slots=True)
class _HolderFields:
    """A device in one container: its metrics, and what is known of the pod beside its names."""

    shared: bool = False
    of_pod: Object = field(default_factory=dict)
    metrics: Object = field(default_factory=dict)


_Holders = dict[Owner, _HolderFields]


def rows(snapshot: Snapshot) -> Work[list[DeviceRow]]:
    """The rows, in stable order: by GPU, MIG instance, namespace, pod and container."""
    if snapshot.joined is None:
        return []
    devices = {device.key: device for device in known_devices(snapshot)}
    yield
    cut = cut_gpus(devices.values())
    words = explainer(snapshot)
    yield
    held: dict[DeviceKey, _Holders] = {key: {} for key in devices}
    yield
    filled = yield from _fill(held, snapshot.joined.cells(_FAMILIES))
    yield from _hold_the_rest(held, filled, devices, snapshot)
    shared = _shared_devices(held, snapshot)
    whole_devices = (yield from _whole_devices(snapshot.joined, shared)) if shared else {}
    maker = _RowMaker(snapshot, words, cut, whole_devices, is_silent=_is_kubelet_silent(snapshot, held.values()))
    made: list[DeviceRow] = []
    for count, (key, device) in enumerate(devices.items(), start=1):
        if not count % _DEVICES_A_SLICE:
            yield
        made += maker.rows_of(device, key, held[key])
    return made


class _RowMaker:
    """Makes the rows of each device, of what is known of all."""

    def __init__(
        self,
        snapshot: Snapshot,
        words: Explainer,
        cut: Container[str],
        whole_devices: Mapping[DeviceKey, WholeDevice],
        *,
        is_silent: bool,
    ) -> None:
        """`cut` are the GPUs with MIG instances. `is_silent`: the kubelet does not say who holds devices."""
        self._snapshot = snapshot
        self._words = words
        self._cut = cut
        self._whole_devices = whole_devices
        self._why_silent = SILENT if is_silent else ""
        self._users = users_of_devices(snapshot)
        self._idle_since = _idle_since(snapshot)
        self._granted = _granted(snapshot)
        self._hangs = _hangs(snapshot)
        self._timestamp = rfc3339(snapshot.read_at_seconds)
        self._read_at = rfc3339(snapshot.values_read_at_seconds)

    def rows_of(self, device: Subject, key: DeviceKey, holders: _Holders) -> Iterator[DeviceRow]:
        """The rows of one device, by its holders."""
        snapshot = self._snapshot
        of_device: Object = {
            "node_name": _node_of(device, snapshot),
            **object_of(device, self._cut),
            "timestamp": self._timestamp,
            "read_at": self._read_at,
            "whole_device": self._whole_devices.get(key),
            "used_by": tuple(self._users.get(key, ())),
        }
        if len(holders) > 1:
            # a device with an owner is not free, even if it also has a row without owner
            holders.pop(_NOBODY, None)
        # with --sharing device the single row of several holders names none of them
        is_shared = len(snapshot.owners.of(key)) > 1 and holders.keys() == {_NOBODY}
        for owner, entry in sorted(holders.items(), key=_OWNER):
            row = DeviceRow(
                **of_device,
                **_of_owner(owner, snapshot),
                **entry.of_pod,
                **entry.metrics,
                **_use(snapshot, key, owner),
                **_health(snapshot, key, owner),
                **self._hangs.get((key, owner), NOTHING),
                **self._granted.get((key, owner), NOTHING),
                gpu_shared=entry.shared or is_shared,
                last_xid=_last_xid(snapshot, key, entry),
                holder_since=_holder_since(snapshot, key, owner),
                idle_since=rfc3339(self._idle_since.get((key, owner))),
            )
            why = "" if owner.pod else self._words.why_unknown(device) or self._why_silent
            yield in_its_state(row, idle_below=snapshot.context.idle_below, why_unknown=why)


def _hangs(snapshot: Snapshot) -> Mapping[tuple[DeviceKey, Owner], Object]:
    """What is suspected of the holders of devices, by device and container, as fields of a row."""
    return {
        (key, holder): {"suspected_hang": hang.reason, "suspected_hang_message": hang.message}
        for hang in snapshot.hangs.suspected
        for key in hang.devices
        for holder in hang.holders
    }


def _granted(snapshot: Snapshot) -> Mapping[tuple[DeviceKey, Owner], Object]:
    """What allocators granted, by device and container, as fields of a row."""
    return {
        (key, holder.owner): granted_fields(holder.grant)
        for key, holders in snapshot.owners.holders.items()
        for holder in holders
        if holder.grant is not None
    }


def granted_fields(grant: Grant) -> Object:
    """The fields of JSON that say who granted a part of a device, and what."""
    return {
        "allocator": grant.allocator,
        "requested_memory_mib": grant.memory_mib,
        "requested_cores_percent": grant.cores_percent,
        "requested_fraction": grant.fraction,
    }


def _shared_devices(held: Mapping[DeviceKey, _Holders], snapshot: Snapshot) -> set[DeviceKey]:
    """The devices whose rows may have a part of their values: shared ones, and GPUs that are cut into instances."""
    shared: set[DeviceKey] = set()
    for key, holders in held.items():
        if len(snapshot.owners.of(key)) > 1 or any(entry.shared for entry in holders.values()):
            shared.add(key)
        if key.instance:
            shared.add(DeviceKey(uuid=key.uuid))
    return shared


def _node_of(device: Subject, snapshot: Snapshot) -> str:
    """The node's name; without --node-name the one that the page gives the device."""
    is_named = snapshot.context.node_is_named or not device.host
    return snapshot.node if is_named else device.host


def _holder_since(snapshot: Snapshot, device: DeviceKey, owner: Owner) -> str | None:
    """The time from which this container holds the device; None if it already held it when the exporter started."""
    since = snapshot.held_since
    holder = owner if owner.pod else None
    # the holder of a whole GPU holds its instances
    return rfc3339(since.get((device, holder), since.get((DeviceKey(uuid=device.uuid), holder))))


def _idle_since(snapshot: Snapshot) -> Since:
    """The times from which idle holders have left their devices idle (seconds since 1970, as in the family)."""
    accounts = snapshot.accounts.rows if snapshot.accounts else ()
    since = ((row.device, row.owner, row.idle_since_ns) for row in accounts)
    return {(device, owner): ns // 1_000_000 / 1000 for device, owner, ns in since if ns is not None}


def _fill(held: Mapping[DeviceKey, _Holders], cells: Iterable[Cell]) -> Work[set[int]]:
    """Put the values of the joined page into place, and return the subjects that they are of, by their own ids."""
    # by the objects themselves: all samples of a device and owner share them
    metrics_of: dict[tuple[int, int], dict[str, int | float | None]] = {}
    for count, (family, subject, row, value) in enumerate(cells, start=1):
        if not count % ITEMS_A_SLICE:
            yield
        metrics = metrics_of.get((id(subject), id(row)))
        if metrics is None:
            # values of a switch or a CPU are filled, too, and thrown away later
            metrics = _hold(held.get(subject.key, {}), row, subject).metrics
            metrics_of[id(subject), id(row)] = metrics
        field = _FIELD_OF[family]
        # of two names of one measurement, and of two rows that are alike, the first that has a value
        if metrics.get(field.json) is None:
            metrics[field.json] = number(value, field)
    return {subject for subject, _ in metrics_of}


def _hold_the_rest(
    held: Mapping[DeviceKey, _Holders], filled: Container[int], devices: Mapping[DeviceKey, Subject], snapshot: Snapshot
) -> Work[None]:
    """Add the owners of devices without a sample of these families, or without any: their samples would gain them."""
    seen = snapshot.joined.subjects if snapshot.joined else {}
    rest = [subject for subject in seen if id(subject) not in filled and subject.key in devices]
    sampled = {subject.key for subject in seen}
    rest += [device for key, device in devices.items() if key not in sampled]
    yield
    for some in attributed(snapshot, rest, ITEMS_A_SLICE):
        for subject, of_subject in some:
            for row in of_subject.each:
                _hold(held[subject.key], row, subject)
        yield


def _hold(holders: _Holders, row: Row, subject: Subject) -> _HolderFields:
    """The entry of the row's owner among a device's holders; a new entry if the owner has none yet."""
    owner = row.owner or _NOBODY
    if owner == _NOBODY and subject.exported:
        owner = subject.exported
    entry = holders.get(owner)
    if entry is None:
        entry = holders[owner] = _HolderFields()
    entry.shared = entry.shared or row.shared
    entry.of_pod = entry.of_pod or _of_pod(row)
    return entry


def _of_pod(row: Row) -> Object:
    of_pod = {"pod_uid": row.uid, "pod_labels": dict(row.pod_labels)}
    return {name: value for name, value in of_pod.items() if value}


def are_owners_unknown(snapshot: Snapshot, device_rows: Iterable[DeviceRow]) -> bool:
    """Whether devices seem to have no holders only because the kubelet does not say who holds them.

    `device_rows` are the rows of all devices: a page may name owners without the kubelet.
    """
    return _seems_kubelet_silent(snapshot) and not any(row.pod for row in device_rows)


def _is_kubelet_silent(snapshot: Snapshot, held: Iterable[_Holders]) -> bool:
    """The same, before there are rows: by the holders of each device."""
    return _seems_kubelet_silent(snapshot) and not any(owner.pod for holders in held for owner in holders)


def _seems_kubelet_silent(snapshot: Snapshot) -> bool:
    kubelet = snapshot.health.get(KUBELET)
    return kubelet is not None and is_kubelet_silent(kubelet, snapshot.owners)


def _of_owner(owner: Owner, snapshot: Snapshot) -> Object:
    name, kind = snapshot.workloads.get(owner.pod_key, ("", ""))
    queue = queue_among(snapshot.pod_labels.get(owner.pod_key, ()))
    return {**asdict(owner), "workload_name": name, "workload_kind": kind, "queue": queue}


def _whole_devices(joined: JoinedPage, wanted: Container[DeviceKey]) -> Work[Mapping[DeviceKey, WholeDevice]]:
    """The page's values of whole devices: of shared devices, and of GPUs whose MIG instances repeat their values."""
    values: dict[DeviceKey, dict[str, list[int | float]]] = {}
    for count, (series, value) in enumerate(joined.readings(_WHOLE_FAMILIES), start=1):
        if not count % ITEMS_A_SLICE:
            yield
        subject = series.subject
        field = _FIELD_OF[series.name]
        key = subject.key
        if field.of_gpu and subject.instance:
            key = DeviceKey(uuid=key.uuid)
        if subject.vgpu or key not in wanted:
            continue
        amount = number(value, field)
        if amount is not None:
            values.setdefault(key, {}).setdefault(field.json, []).append(amount)
    sure = ((key, _sure(of_device)) for key, of_device in values.items())
    return {key: WholeDevice(**of_device) for key, of_device in sure if of_device}


def _sure(values: Mapping[str, Sequence[int | float]]) -> Mapping[str, int | float]:
    """The values that are certainly the device's: rows that differ may be parts of owners, or instances' own values."""
    return {name: max(of_field) for name, of_field in values.items() if is_repeated(of_field)}


def _use(snapshot: Snapshot, device: DeviceKey, owner: Owner) -> Object:
    """The container's own measured use of the device, and its programs' requests to CUDA there."""
    own_use: Object = {}
    if snapshot.measured and (device, owner) in snapshot.measured.uses:
        own_use["measured"] = OwnUse(**_amounts(snapshot.measured.uses[device, owner]))
    holder = None if owner == _NOBODY else owner
    if snapshot.cuda and (holder, device) in snapshot.cuda.uses:
        own_use["cuda"] = as_object(snapshot.cuda.uses[holder, device])
    return own_use


def _amounts(use: Use) -> Object:
    return {
        "memory_used_bytes": use.memory_bytes,
        "utilization_ratio": use.sm_ratio,
        "processes": use.processes,
    }


def _health(snapshot: Snapshot, device: DeviceKey, owner: Owner) -> Object:
    """The device's health with its reasons, and the kubelet's message."""
    fields: Object = {}
    verdict = snapshot.verdicts.get(device)
    if verdict is not None:
        fields = {"health": verdict.verdict, "health_reasons": tuple(map(str, verdict.reasons))}
    healths = snapshot.healths
    health = healths.get((device, owner)) or healths.get((DeviceKey(uuid=device.uuid), owner))
    if health is not None:
        fields["health_message"] = health.message
    return fields


def _last_xid(snapshot: Snapshot, device: DeviceKey, entry: _HolderFields) -> int | None:
    """The last XID by the kernel's log, which also has XIDs that no page shows; else by the page."""
    verdict = snapshot.verdicts.get(device)
    if verdict is not None and verdict.last_xid is not None:
        return verdict.last_xid
    return error_on_page(entry.metrics.get("xid_errors"))


def explainer(snapshot: Snapshot) -> Explainer:
    """Explains devices without samples or without owners."""
    return Explainer(
        snapshot.owners,
        snapshot.joined.subjects if snapshot.joined else (),
        snapshot.context,
        snapshot.inventory,
        kubelet_answered=snapshot.assignments_age_seconds is not None,
    )


def users_of_devices(snapshot: Snapshot) -> Mapping[DeviceKey, list[DeviceUser]]:
    """The users of each device that do not hold it: pods first, then containers outside pods, then other processes.

    A process in no container has no other name than its command, which only the user may show (--processes.expose).
    """
    users: defaultdict[DeviceKey, list[DeviceUser]] = defaultdict(list)
    measured = snapshot.measured
    if measured is None:
        return users
    for (key, owner), use in sorted(measured.strangers.items(), key=itemgetter(0)):
        users[key].append(DeviceUser(**asdict(owner), **_amounts(use)))
    for unowned in measured.unowned:
        who = _outside_pods(unowned, measured, exposes_processes=snapshot.context.exposes_processes)
        if who:
            process = unowned.process
            use = Use(memory_bytes=process.memory_bytes, sm_ratio=process.sm_ratio, processes=1)
            users[process.device].append(DeviceUser(**who, **_amounts(use)))
    return users


def _outside_pods(unowned: Unowned, measured: Measured, *, exposes_processes: bool) -> Object:
    """The names of the container or command of a process outside pods.

    Empty if they must not be shown, or for a pod's process.
    """
    if unowned.reason == "other_container" and unowned.place:
        return {"engine": unowned.place.engine, "id": unowned.place.container_id}
    if unowned.reason != "no_container" or not exposes_processes or not measured.host:
        return {}
    pid = unowned.process.pid
    process = measured.host.by_pid.get(pid)
    return {"command": process.command, "pid": pid} if process else {}
