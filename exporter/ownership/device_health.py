"""The kubelet's view of the health of held devices: its word in the pods' status, and the ids that it offers.

The word (allocatedResourcesStatus, KEP-4680) is not enough. The kubelet goes on saying Healthy of a device that its
plugin no longer lists, and of all devices of a dead plugin. GetAllocatableResources lacks these devices at once, and
also the devices that a plugin calls unhealthy (measured on 1.36). But while a kubelet or a plugin restarts,
GetAllocatableResources lacks all devices, and the word for an unhealthy device is Healthy. So while nobody offers a
device that is not called unhealthy, its last health counts for GRACE_SECONDS. Devices of claims are never on offer:
only the word counts for them.

Pure, except for what it remembers. Callers pass moments in, in seconds of a clock that never steps back.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.model.devices import NO_HEALTHS, Allocatable, Assignment, DeviceHealth, DeviceHealths, DeviceKey, Owners
from exporter.model.memo import Memo
from exporter.model.nothing import NOTHING
from exporter.model.pods import AllocatedDevice, Owner, PodsByName
from exporter.ownership.counted_ids import COUNTED, device_in

GRACE_SECONDS = 30.0
MOST_MESSAGE_CHARS = 512  # drivers write messages; an object of /container/metrics has some 1,100 characters
_WORDS = ("Unhealthy", "Unknown", "Healthy")  # if ids of one device differ, the first of these words counts
_CLAIM = "claim:"
_NOT_OFFERED = DeviceHealth(word="Unknown", message="its device plugin no longer offers it")
_NOT_OFFERED_OR_UNHEALTHY = DeviceHealth(
    word="Unknown", message="its device plugin no longer offers it, or says that it is unhealthy"
)


NOT_OFFERED = frozenset({_NOT_OFFERED.message, _NOT_OFFERED_OR_UNHEALTHY.message})
# The health of devices by their container's status, by resource and id.
_DeviceWords = Mapping[tuple[str, str], DeviceHealth]


class HealthWatch:
    """Remembers the health of devices, and since when nobody has offered a device that somebody holds."""

    def __init__(self) -> None:
        self._healths: DeviceHealths = NO_HEALTHS
        self._due_at = Memo(0.0)
        self._changed_at = Memo(0.0)
        self._missing_since: Mapping[Assignment, float] = {}

    @property
    def doubted_at(self) -> float | None:
        """The moment from which an answer about the offered ids counts. If it was asked for earlier, it is out of date.

        None while the kubelet offers every device that it does not call unhealthy: then the pods' status is enough.
        """
        return self._changed_at.value if self._missing_since else None

    def look(self, owners: Owners, pods: PodsByName, offered: Allocatable | None, at_seconds: float) -> DeviceHealths:
        """The health by device and holder; the same object as long as nothing changed.

        Devices without a report are left out. `pods` are the pods of the holders; none if the exporter does not read
        pods. `offered` is the kubelet's last answer on the ids that it can hand out; None if it has not answered.
        """
        if self._due_at.is_of(owners, pods, offered) and at_seconds < self._due_at.value:
            return self._healths
        self._changed_at.of(lambda *_: at_seconds, owners, pods)
        words: dict[Owner, _DeviceWords] = {}
        missing: dict[Assignment, float] = {}
        by_holder: dict[tuple[DeviceKey, Owner], list[DeviceHealth]] = {}
        for match in owners.matches:
            held = match.assignment
            # what the kubelet says of an allocator's token is true of the GPU that its id names
            if match.key is None or held.word is not None:
                continue
            owner = match.assignment.owner
            if owner not in words:
                words[owner] = _words_of(owner, pods)
            health = _word_on(held, words[owner])
            if _is_missing(held, offered) and (health is None or health.word != "Unhealthy"):
                missing[held] = self._missing_since.get(held, at_seconds)
                if at_seconds - missing[held] >= GRACE_SECONDS:
                    health = _NOT_OFFERED if health else _NOT_OFFERED_OR_UNHEALTHY
                else:
                    health = self._healths.get((match.key, owner))
            if health is not None:
                by_holder.setdefault((match.key, owner), []).append(health)
        self._missing_since = missing
        self._due_at.keep(_next_end(missing.values(), at_seconds), owners, pods, offered)
        healths = {holder: _worst(of_devices) for holder, of_devices in by_holder.items()}
        if healths != self._healths:
            self._healths = MappingProxyType(healths)
        return self._healths


def _next_end(missing_since: Iterable[float], at_seconds: float) -> float:
    """The next moment at which a missing device has been missing for as long as is tolerated; else infinity."""
    ends = (since + GRACE_SECONDS for since in missing_since)
    return min((end for end in ends if end > at_seconds), default=float("inf"))


def _words_of(owner: Owner, pods: PodsByName) -> _DeviceWords:
    """The words on the devices of a container; none where its pod is not read."""
    pod = pods.get(owner.pod_key)
    return _words(pod.allocated.get(owner.container, ()) if pod else ())


def _word_on(held: Assignment, words: _DeviceWords) -> DeviceHealth | None:
    """The first word on a device among the names that the status may have for it."""
    if not words:
        return None
    for name in _names(held):
        if name in words:
            return words[name]
    return None


def _words(allocated: Iterable[AllocatedDevice]) -> _DeviceWords:
    """The words of a container's status on its devices, by resource and id. All claims have the resource _CLAIM."""
    words: dict[tuple[str, str], DeviceHealth] = {}
    for device in allocated:
        if not device.health:
            continue
        resource = _CLAIM if device.resource.startswith(_CLAIM) else device.resource
        name = (resource, device.device_id)
        word = device.health if device.health in _WORDS else "Unknown"
        health = DeviceHealth(word=word, message=device.message[:MOST_MESSAGE_CHARS])
        words[name] = _worst((words.get(name, health), health))
    return words


def _names(held: Assignment) -> Iterable[tuple[str, str]]:
    if held.claim is None:
        return ((held.resource, held.device_id),)
    return ((_CLAIM, name) for name in held.claim.status_names)


def _is_missing(held: Assignment, offered: Allocatable | None) -> bool:
    """Whether the kubelet does not offer a held device.

    An id that is counted is on offer if any id of its GPU is: the least one of a container is not the least of all.
    """
    if offered is None or held.claim is not None:
        return False
    of_resource = offered.get(held.resource, NOTHING)
    if held.resource in COUNTED:
        return device_in(held.device_id) not in map(device_in, of_resource)
    return held.device_id not in of_resource


def _worst(healths: Iterable[DeviceHealth]) -> DeviceHealth:
    return min(healths, key=lambda health: _WORDS.index(health.word))
