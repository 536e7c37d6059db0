"""The health of each device: one verdict from the reports of all sources. docs/health.md has the rules.

Every report counts, and the worst is the verdict. A device that was read (samples on a page, NVML) is `ok` if no report
complains of it. If only the kubelet names a device, the kubelet's word is the verdict. Without any report it is
`unknown`. Pure, except for what it remembers. Moments are seconds since 1970.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType

from exporter.dcgm.fields import FIELDS, HEALTH, Field, HealthRule
from exporter.dcgm.health_watches import FAMILY, WatchRow, findings
from exporter.dcgm.xids import is_error, verdict_of
from exporter.dividing.decimals import number
from exporter.model.devices import DeviceKey, Inventory, InventoryGpu, Owners, bare
from exporter.model.driver import DriverReading
from exporter.model.health import (
    MOST_REASONS,
    NO_VERDICTS,
    OF_DCGM,
    DeviceVerdict,
    DeviceVerdicts,
    HealthReason,
    rank,
)
from exporter.model.kernel import DeviceEvent, KernelEvent
from exporter.model.link_events import LinkEvent
from exporter.model.memo import Memo
from exporter.model.pages import JoinedPage
from exporter.model.pods import Owner
from exporter.model.slices import ITEMS_A_SLICE, Work
from exporter.model.snapshot import Snapshot, known_devices
from exporter.ownership.device_health import NOT_OFFERED
from exporter.ownership.kernel_events import MOST_EVENTS, ends_at, reason_of
from exporter.ownership.link_health import LinkHealth
from exporter.ownership.taints import by_taints, taints_of_devices, xids_of_taints
from exporter.wording import one_line

# longer than dcgm-exporter's reads (every 30 s), and than a restart of its pod, the kubelet or the driver's library
GRACE_SECONDS = 120.0
CLOCKS_SECONDS = 300.0
MOST_ERRORS = 256
_MOST_XID = 999
_FIELD_OF: Mapping[bytes, Field] = {
    name.encode(): field
    for name, field in FIELDS.items()
    if name == FAMILY or name.encode() in HEALTH or (field.accounts and field.accounts[0] in ("xids", "energy"))
}
_FAMILIES = frozenset(_FIELD_OF)
_WATCHES = FAMILY.encode()
PageWord = tuple[DeviceKey, HealthRule]
MISSING_SECONDS = 86_400.0  # after this time a GPU that was there is forgotten
_SOURCES = "run pod-gpu-metrics-exporter doctor: it names what is wrong with the sources of samples"
_DRIVER = "look at the kernel's log (dmesg | grep -e NVRM -e Xid) and at nvidia-smi on the node"
_PLUGIN = "look at the log of the device plugin, or of the DRA driver, on the node"
UNREAD = HealthReason("unread", "no source has read it", _SOURCES, "unknown")
MISSING = HealthReason("missing", "dcgm-exporter's page had it before, and lacks it now", _DRIVER, "unknown")
UNLISTED = HealthReason("nvml-lost", "NVML listed it before, and does not any more", _DRIVER, "gone")
UNOFFERED = HealthReason("not-offered", "its device plugin no longer offers it", _PLUGIN, "unknown")
UNHEALTHY = HealthReason("kubelet", "its device plugin or DRA driver calls it unhealthy", _PLUGIN, "failing")
UNCLEAR = HealthReason("kubelet", "its device plugin or DRA driver does not know how it is", _PLUGIN, "unknown")
Reasons = Iterator[tuple[DeviceKey, HealthReason]]
XidOfGpu = tuple[int, Container[str]]  # an XID, and all names of its GPU


def verdict_by(reasons: Iterable[HealthReason], index: str = "") -> DeviceVerdict:
    """The verdict of these reasons, which is the worst of them. Their order does not matter, and each counts once."""
    ranked = sorted(set(reasons), key=rank)
    return DeviceVerdict(ranked[0].verdict if ranked else "ok", tuple(ranked[:MOST_REASONS]), index)


class PageWords:
    """The words of pages on the health of GPUs; it remembers values from look to look.

    A page shows the last XID for ever. So a new value is an error, unless the XID only informs. The value on the first
    page is an error only if a GPU with this XID needs a reset: a reset would have ended dcgm-exporter, and its XIDs
    with it.

    `words` stays the same object while nothing changes. `errors` are the XIDs that pages showed. `reset_at` says when a
    GPU's counters began anew, by its UUID.
    """

    def __init__(self) -> None:
        self.words: frozenset[PageWord] = frozenset()
        self.errors: tuple[DeviceEvent, ...] = ()
        self.reset_at: Mapping[str, float] = {}
        self._values: dict[tuple[bytes, DeviceKey], float] = {}
        self._until: dict[PageWord, float] = {}

    def read(self, joined: JoinedPage | None, at: float) -> Work[None]:
        """Take in the page of this moment; None if there is no page."""
        values: dict[tuple[bytes, DeviceKey], float] = {}
        watches: defaultdict[DeviceKey, dict[str, WatchRow]] = defaultdict(dict)
        for count, (series, text) in enumerate(joined.readings(_FAMILIES) if joined else (), start=1):
            if not count % ITEMS_A_SLICE:
                yield
            subject = series.subject
            family = series.name
            value = None if subject.vgpu else number(text, _FIELD_OF[family])
            if value is None:
                continue
            key = subject.key
            if family == _WATCHES:
                watch, error = series.own_labels
                row = WatchRow(value, error)
                rows = watches[key]
                rows[watch] = max(row, rows.get(watch, row))
                continue
            values[family, key] = value
            self._take(family, key, value, self._values.get((family, key)), at)
        self._take_watches(watches, at)
        if joined is not None:
            self._values = values
        self._until = {word: until for word, until in self._until.items() if until > at}
        if self.words != self._until.keys():
            self.words = frozenset(self._until)

    def _take(self, family: bytes, key: DeviceKey, value: float, before: float | None, at: float) -> None:
        """Take in a value of a device; `before` is the one on the last page, None if that had none."""
        for rule in HEALTH.get(family, ()):
            if int(value) & rule.bits if rule.bits else value:
                self._until[key, rule] = at + (CLOCKS_SECONDS if rule.bits else GRACE_SECONDS)
            elif not rule.bits:
                self._until.pop((key, rule), None)
        accounts = _FIELD_OF[family].accounts
        amount = accounts[0] if accounts else ""
        if amount == "energy" and before is not None and value < before / 2:
            self.reset_at = {**self.reset_at, key.uuid: at}
        elif amount == "xids" and value != before and _is_xid_error(value):
            self._take_xid(int(value), key.uuid, at, is_first=before is None)

    def _take_xid(self, xid: int, uuid: str, at: float, *, is_first: bool) -> None:
        """Take in a new XID of a GPU, or the one on its first page."""
        if is_first and verdict_of(xid) not in ("failing", "gone"):
            return
        event = KernelEvent(kind="xid", sequence=0, booted_us=0, address="", code=xid)
        # samples of a GPU's instances repeat the GPU's XID
        others = (error for error in self.errors if (error.uuid, error.event) != (uuid, event))
        self.errors = (*others, DeviceEvent(event=event, at_seconds=at, uuid=uuid))[-MOST_ERRORS:]

    def _take_watches(self, watches: Mapping[DeviceKey, Mapping[str, WatchRow]], at: float) -> None:
        """Let the present findings of DCGM take the place of its earlier findings on these devices."""
        for key, rule in tuple(self._until):
            if key in watches and rule.reason.reason.startswith(OF_DCGM):
                del self._until[key, rule]
        for key, rows in watches.items():
            self._until |= {(key, HealthRule(reason)): at + GRACE_SECONDS for reason in findings(rows)}


def _is_xid_error(value: float) -> bool:
    return 0 < value <= _MOST_XID and is_error(int(value))


class Verdicts:
    """The verdicts on all devices. It remembers the last verdicts, and the devices that were read before.

    `link_events` is what happened to links of GPUs, the newest first.
    """

    def __init__(self) -> None:
        self._verdicts: Memo[DeviceVerdicts] = Memo(NO_VERDICTS)
        self._at = self._due_at = 0.0
        self._page = PageWords()
        self._links = LinkHealth()
        self.link_events: tuple[LinkEvent, ...] = ()
        self._owners_before: Owners | None = None
        self._lost: Mapping[str, HealthReason] = {}
        self._listed: set[DeviceKey] = set()  # devices that NVML has listed at any time
        self._index_of: dict[DeviceKey, str] = {}
        # by device that was read at any time: since when it is not read; None: the last look read it
        self._missing_since: dict[DeviceKey, float | None] = {}

    def look(
        self, snapshot: Snapshot, errors: tuple[DeviceEvent, ...] | None, reading: DriverReading | None, at: float
    ) -> Work[DeviceVerdicts]:
        """The verdicts on all known devices; the same object as long as nothing changed.

        `errors` are the errors of the kernel's log that may still count. None: nobody reads the log, and the XIDs of
        pages count. `reading` is NVML's last reading.
        """
        yield from self._page.read(snapshot.joined, at)
        yield from self._links.read(snapshot.joined, reading, at)
        self.link_events = self._note_links(snapshot.owners, snapshot.inventory, at)
        if errors is None:
            errors = self._page.errors
        if reading and reading.lost != self._lost:
            self._lost = reading.lost
        gpus = reading.inventory.gpus if reading else ()
        made_from = self._inputs(snapshot, errors, gpus)
        if self._verdicts.is_of(*made_from) and at < self._due_at:
            return self._verdicts.value
        self._at = at
        self._due_at = float("inf")
        listed = {key for gpu in gpus if gpu.uuid not in self._lost for key in _keys_of(gpu)}
        self._listed |= listed
        read = _read_devices(listed, snapshot.joined)
        by_device: dict[DeviceKey, set[HealthReason]] = {key: set() for key in self._devices(snapshot, read)}
        yield
        taints = taints_of_devices(snapshot.context.slice_devices.values(), snapshot.inventory, by_device)
        shown = snapshot.events or ()
        errors = (*errors, *xids_of_taints(taints, (*errors, *shown)))
        by_kernel = self._by_kernel(errors, tuple(by_device), snapshot.inventory)
        for key, reason in chain(self._by_reads(), by_kernel, _by_kubelet(snapshot, read), by_taints(taints, read)):
            by_device.setdefault(key, set()).add(reason)
        for key in by_device.keys() - read:
            by_device[key].update(self._unread(key, snapshot, listed, by_device[key]))
        verdicts = self._worst(by_device, _last_xids((*errors, *shown), snapshot.inventory))
        # Another look may have run in the pauses. It must not take the last verdicts for verdicts on its own snapshot.
        before = self._verdicts.value
        self._verdicts.keep(MappingProxyType(verdicts) if verdicts != before else before, *made_from)
        return self._verdicts.value

    def _note_links(self, owners: Owners, inventory: Inventory, at: float) -> tuple[LinkEvent, ...]:
        """Note what happened to links at this look, with those who held the GPU at this look and at the last one."""
        before = self._owners_before
        self._owners_before = owners
        events = self.link_events
        for uuid, name, trouble in self._links.happened:
            names = _Names(inventory).of(uuid)
            holders = _holders(owners, names)
            is_sure = before is not None and holders == _holders(before, names)
            event = LinkEvent(
                at_seconds=at,
                name=name,
                uuid=uuid,
                index=self._index_of.get(DeviceKey(uuid=uuid), ""),
                trouble=trouble,
                holders=tuple(holders) if is_sure else None,
            )
            events = (event, *events)[:MOST_EVENTS]
        return events

    def _inputs(
        self, snapshot: Snapshot, errors: tuple[DeviceEvent, ...], gpus: tuple[InventoryGpu, ...]
    ) -> tuple[object, ...]:
        """What the verdicts are made from: first what devices there are, then the reports on them."""
        return (
            snapshot.owners,
            snapshot.joined.subjects if snapshot.joined else None,
            snapshot.inventory,
            gpus,
            snapshot.is_page_away,
            snapshot.healths,
            snapshot.context.slice_devices,
            errors,
            snapshot.events or (),
            self._page.words,
            self._links.reasons,
            self._links.advice,
            self._page.reset_at,
            self._lost,
        )

    def _worst(
        self, by_device: Mapping[DeviceKey, Iterable[HealthReason]], xids: Mapping[DeviceKey, XidOfGpu]
    ) -> dict[DeviceKey, DeviceVerdict]:
        """The verdict of each device's reasons; a MIG instance also has those of its GPU."""
        verdicts: dict[DeviceKey, DeviceVerdict] = {}
        for key, reasons in by_device.items():
            of_gpu = by_device.get(DeviceKey(uuid=key.uuid), ()) if key.instance else ()
            verdict = verdict_by((*reasons, *of_gpu), self._index_of.get(key, ""))
            verdicts[key] = verdict._replace(last_xid=_xid_of(key, xids), advice=self._links.advice.get(key.uuid, ()))
        return verdicts

    def _by_reads(self) -> Reasons:
        """The reasons that the page and NVML give."""
        for key, rule in self._page.words:
            yield key, rule.reason
        for uuid, reason in self._links.reasons:
            yield DeviceKey(uuid=uuid), reason
        for uuid, reason in self._lost.items():
            yield DeviceKey(uuid=uuid), reason

    def _unread(
        self, key: DeviceKey, snapshot: Snapshot, listed: Container[DeviceKey], others: Container[HealthReason]
    ) -> Iterator[HealthReason]:
        """The reason why nobody reads a device.

        None if only the kubelet reports on it, or if it was read a moment ago.
        """
        since = self._missing_since.get(key)
        if since is not None and self._is_before(since + GRACE_SECONDS):
            return
        if since is not None and listed and key in self._listed and key.uuid not in self._lost:
            yield UNLISTED
        elif since is not None and not snapshot.is_page_away:
            yield MISSING
        elif not others and not any(key == named for named, _ in snapshot.healths):
            yield UNREAD

    def _devices(self, snapshot: Snapshot, read: set[DeviceKey]) -> Iterable[DeviceKey]:
        """The known devices, and devices that were read before: a GPU for a day, a MIG instance for GRACE_SECONDS."""
        devices = {device.key: device.index for device in known_devices(snapshot)}
        missing = self._missing_since
        for key in missing.keys() - read:
            since = missing[key]
            if since is None:
                missing[key] = since = self._at
            most = GRACE_SECONDS if key.instance or key.uuid.startswith("MIG-") else MISSING_SECONDS
            if key not in devices and not self._is_before(since + most):
                del missing[key]
        missing |= dict.fromkeys(read.intersection(devices), None)
        devices = dict.fromkeys(missing, "") | devices
        self._index_of = {key: index or self._index_of.get(key, "") for key, index in devices.items()}
        return devices

    def _is_before(self, moment: float) -> bool:
        """Whether a moment lies ahead. If so, the verdicts are worked out again at that moment."""
        if self._at < moment:
            self._due_at = min(self._due_at, moment)
        return self._at < moment

    def _by_kernel(self, errors: Iterable[DeviceEvent], devices: Iterable[DeviceKey], inventory: Inventory) -> Reasons:
        """The reasons that errors of the kernel's log give, as long as they count and the GPU has not begun anew."""
        names = _Names(inventory)
        for error in errors:
            reason = reason_of(error)
            if not reason or not error.uuid:
                continue
            of_gpu = names.of(error.uuid)
            reset_at = max(self._page.reset_at.get(name, 0.0) for name in of_gpu)
            if reset_at <= error.at_seconds and self._is_before(ends_at(error, reason)):
                instance = error.event.instance
                keys = [key for key in devices if key.uuid in of_gpu and key.instance in ("", instance)]
                own = [key for key in keys if key.instance == instance]
                # only the log may know a GPU that the driver never reached
                for key in own or keys or (DeviceKey(uuid=error.uuid),):
                    yield key, reason


class _Names:
    """The names of GPUs in samples and device ids, by the UUID of an error."""

    def __init__(self, inventory: Inventory) -> None:
        self._by_uuid = {gpu.uuid: gpu.names for gpu in inventory.gpus}

    def of(self, uuid: str) -> frozenset[str]:
        """All names of a GPU."""
        return frozenset((*self._by_uuid.get(uuid, ()), uuid, bare(uuid)))


def _holders(owners: Owners, names: Container[str]) -> Sequence[Owner]:
    """The containers that hold a GPU with one of these names, or an instance of it."""
    of_gpu = (holders for key, holders in owners.holders.items() if key.uuid in names)
    return sorted({holder.owner for holder in chain.from_iterable(of_gpu)})


def _last_xids(events: Iterable[DeviceEvent], inventory: Inventory) -> Mapping[DeviceKey, XidOfGpu]:
    """The last XID that is an error, of each GPU ("") and instance, with the GPU's names; the latest of all first."""
    names = _Names(inventory)
    xids: dict[DeviceKey, XidOfGpu] = {}
    for error in sorted(events, key=lambda error: -error.at_seconds):
        event = error.event
        if event.kind == "xid" and event.code and is_error(event.code):
            xids.setdefault(DeviceKey(uuid=error.uuid, instance=event.instance), (event.code, names.of(error.uuid)))
    return xids


def _xid_of(key: DeviceKey, xids: Mapping[DeviceKey, XidOfGpu]) -> int | None:
    """The last XID of a device. A GPU has the errors of its instances, and an instance has the errors of its GPU."""
    for error_key, (xid, names) in xids.items():
        if key.uuid in names and (not key.instance or error_key.instance in ("", key.instance)):
            return xid
    return None


def _read_devices(listed: set[DeviceKey], joined: JoinedPage | None) -> set[DeviceKey]:
    """The devices that NVML lists or a page has, and their GPUs: a page may have rows of a GPU's instances only."""
    read = listed.union(subject.key for subject in (joined.subjects if joined else ()))
    return read.union(DeviceKey(uuid=key.uuid) for key in read)


def _keys_of(gpu: InventoryGpu) -> Iterator[DeviceKey]:
    yield DeviceKey(uuid=gpu.uuid)
    for mig in gpu.mig:
        yield DeviceKey(uuid=gpu.uuid, instance=mig.instance_id)
        yield DeviceKey(uuid=mig.uuid)


def _by_kubelet(snapshot: Snapshot, read: Container[DeviceKey]) -> Reasons:
    for (key, _), health in snapshot.healths.items():
        message = one_line(health.message)  # a driver's; NVIDIA's DRA driver sends none
        if message in NOT_OFFERED:
            yield key, replace(UNOFFERED, message=message)
        elif health.word == "Unhealthy":
            yield key, _with_message(UNHEALTHY, message)
        # samples say more than Unknown without a message
        elif health.word == "Unknown" and (message or key not in read):
            yield key, _with_message(UNCLEAR, message)


def _with_message(reason: HealthReason, message: str) -> HealthReason:
    return replace(reason, message=f"{reason.message}: {message}") if message else reason
