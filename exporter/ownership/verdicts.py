"""How each device is: one verdict, by all that speak of it. docs/health.md has the rules.

Nobody's word is enough alone. The kubelet knows what its device plugins say, and these see few errors; the kernel's log
has all errors, and hardly ever says when one is over. So every word counts, and the worst is the verdict. A device that
was read (samples on a page, NVML) and that nobody complains of is `ok`; one that only the kubelet names is what the
kubelet says; one of which nobody says anything is `unknown`.

Pure, except for what it remembers. Moments are seconds since 1970.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import chain
from types import MappingProxyType

from exporter.model.devices import DeviceKey, Inventory, InventoryGpu
from exporter.model.driver import DriverReading
from exporter.model.health import (
    MOST_REASONS,
    NO_VERDICTS,
    VERDICTS,
    DeviceVerdict,
    DeviceVerdicts,
    HealthReason,
    Verdict,
)
from exporter.model.kernel import DeviceEvent
from exporter.model.snapshot import Snapshot
from exporter.ownership.current import same
from exporter.ownership.device_health import NOT_OFFERED
from exporter.ownership.kernel_reasons import ends_at, reason_of
from exporter.ownership.node_devices import known_devices

# dcgm-exporter reads its GPUs every 30 s; its pod, the kubelet and the driver's library restart within two minutes
GRACE_SECONDS = 120.0
MISSING_SECONDS = 86_400.0  # then a GPU that was there is forgotten
_SOURCES = "look at the sources of samples: pod-gpu-metrics-exporter doctor names what is wrong with them"
_DRIVER = "look at the kernel's log (dmesg | grep -e NVRM -e Xid) and at nvidia-smi on the node"
_PLUGIN = "look at the log of the device plugin, or of the DRA driver, on the node"
_UNREAD = HealthReason(code="unread", verdict="unknown", text="no source has read it", remedy=_SOURCES)
_MISSING = HealthReason(
    code="missing", verdict="unknown", text="dcgm-exporter's page had it before, and lacks it now", remedy=_DRIVER
)
Reasons = Iterator[tuple[DeviceKey, HealthReason]]


def verdict_by(reasons: Iterable[HealthReason], index: str = "") -> DeviceVerdict:
    """The worst of these reasons, in whatever order they come; each once."""
    ranked = sorted(set(reasons), key=lambda each: (VERDICTS.index(each.verdict), each.code, each.text, each.remedy))
    verdict = ranked[0].verdict if ranked else "ok"
    return DeviceVerdict(verdict=verdict, reasons=tuple(ranked[:MOST_REASONS]), index=index)


class Verdicts:
    """Remembers the last verdicts, and the devices that were read before."""

    def __init__(self) -> None:
        self._verdicts: DeviceVerdicts = NO_VERDICTS
        self._made_from: tuple[object, ...] = ()
        self._at = self._due_at = 0.0
        self._index_of: dict[DeviceKey, str] = {}
        # of what was read once, since when it is not; None: it was read at the last look
        self._missing_since: dict[DeviceKey, float | None] = {}

    def look(
        self, snapshot: Snapshot, errors: tuple[DeviceEvent, ...], reading: DriverReading | None, at_seconds: float
    ) -> DeviceVerdicts:
        """By device, all that are known; the same object as long as nothing changed.

        `errors` are those of the kernel's log that may still count, `reading` is NVML's last.
        """
        subjects = snapshot.joined.subjects if snapshot.joined else None
        by_driver = reading.inventory if reading else Inventory()
        is_page_away = snapshot.is_page_away
        made_from = (
            snapshot.owners,
            subjects,
            snapshot.inventory,
            snapshot.healths,
            errors,
            by_driver.gpus,
            is_page_away,
        )
        if same(made_from, self._made_from) and at_seconds < self._due_at:
            return self._verdicts
        self._made_from, self._at, self._due_at = made_from, at_seconds, float("inf")
        read = {subject.key for subject in subjects or ()}
        read.update(key for gpu in by_driver.gpus for key in _keys_of(gpu))
        read.update([DeviceKey(uuid=key.uuid) for key in read])  # a page may have rows of a GPU's instances alone
        by_device: defaultdict[DeviceKey, set[HealthReason]] = defaultdict(set)
        for key in self._devices(snapshot, read):
            by_device[key] = set()
        has_words = {key for key, _ in snapshot.healths}
        by_kernel = self._by_kernel(errors, tuple(by_device), snapshot.inventory)
        for key, reason in chain(_by_kubelet(snapshot, read), by_kernel):
            by_device[key].add(reason)
        for key, reasons in by_device.items():
            since = None if key in read else self._missing_since.get(key)
            if key in read or (since is not None and self._is_before(since + GRACE_SECONDS)):
                continue
            if since is not None and not is_page_away:
                reasons.add(_MISSING)
            elif key not in has_words and not reasons:
                reasons.add(_UNREAD)
        verdicts: dict[DeviceKey, DeviceVerdict] = {}
        for key, reasons in by_device.items():
            of_gpu = by_device.get(DeviceKey(uuid=key.uuid), ()) if key.instance else ()
            verdicts[key] = verdict_by((*reasons, *of_gpu), self._index_of.get(key, ""))
        if verdicts != self._verdicts:
            self._verdicts = MappingProxyType(verdicts)
        return self._verdicts

    def _devices(self, snapshot: Snapshot, read: set[DeviceKey]) -> Iterable[DeviceKey]:
        """Those that are known, and those that were read before: a GPU for a day, an instance as long as it is late."""
        devices = {device.key: device.index for device in known_devices(snapshot)}
        missing = self._missing_since
        for key, since in tuple(missing.items()):
            if key not in read:
                missing[key] = self._at if since is None else since
                most = GRACE_SECONDS if key.instance or key.uuid.startswith("MIG-") else MISSING_SECONDS
                if key not in devices and not self._is_before((self._at if since is None else since) + most):
                    del missing[key]
        missing |= dict.fromkeys(read.intersection(devices), None)
        devices = dict.fromkeys(missing, "") | devices
        self._index_of = {key: index or self._index_of.get(key, "") for key, index in devices.items()}
        return devices

    def _is_before(self, moment: float) -> bool:
        """Whether it has not come yet; then the verdicts are due then."""
        if self._at >= moment:
            return False
        self._due_at = min(self._due_at, moment)
        return True

    def _by_kernel(self, errors: Iterable[DeviceEvent], devices: Iterable[DeviceKey], inventory: Inventory) -> Reasons:
        names = {gpu.uuid: gpu.names for gpu in inventory.gpus}
        for error in errors:
            uuid, instance = error.uuid, error.event.instance
            reason = reason_of(error)
            if reason is None or not uuid or not self._is_before(ends_at(error, reason.verdict)):
                continue
            of_gpu = {*names.get(uuid, ()), uuid, uuid.removeprefix("GPU-")}
            keys = [key for key in devices if key.uuid in of_gpu and key.instance == instance]
            keys = keys or [key for key in devices if key.uuid in of_gpu and not key.instance]
            # the log alone may know a GPU that the driver could not reach from the start
            yield from ((key, reason) for key in keys or (DeviceKey(uuid=uuid),))


def _keys_of(gpu: InventoryGpu) -> Iterator[DeviceKey]:
    for uuid in (gpu.uuid, gpu.uuid.removeprefix("GPU-")):
        yield DeviceKey(uuid=uuid)
        yield from (DeviceKey(uuid=uuid, instance=mig.instance_id) for mig in gpu.mig)
    yield from (DeviceKey(uuid=mig.uuid) for mig in gpu.mig)


def _by_kubelet(snapshot: Snapshot, read: Container[DeviceKey]) -> Reasons:
    for (key, _), health in snapshot.healths.items():
        if health.message in NOT_OFFERED:
            yield key, HealthReason(code="not-offered", verdict="unknown", text=health.message, remedy=_PLUGIN)
        elif health.word == "Unhealthy":
            yield key, _of_plugin("failing", "unhealthy", health.message)
        elif health.word == "Unknown" and (health.message or key not in read):
            # without a message nobody has told the kubelet, as NVIDIA's DRA driver does not: samples say more
            yield key, _of_plugin("unknown", "in an unknown state", health.message)


def _of_plugin(verdict: Verdict, word: str, message: str) -> HealthReason:
    says = " ".join("".join(char if char.isprintable() else " " for char in message).split())
    text = f"its device plugin or DRA driver calls it {word}{f': {says}' if says else ''}"
    return HealthReason(code="kubelet", verdict=verdict, text=text, remedy=_PLUGIN)
