"""How the devices that containers hold are, by the kubelet: its word in the pods' status, and what plugins offer.

The word (allocatedResourcesStatus, KEP-4680) is not enough. The kubelet goes on saying Healthy of a device that its
plugin no longer lists, and of all devices of a dead plugin; GetAllocatableResources lacks these at once, and those that
a plugin calls unhealthy, too (measured on 1.36). But it lacks all devices as well while a kubelet or a plugin restarts,
and says Healthy of an unhealthy one then. So what a Healthy device was before counts for GRACE_SECONDS while nobody
offers it. Devices of claims are never on offer: for these the word counts alone.

Pure, except for what it remembers. Moments come in, in seconds of a clock that never steps back.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.model.devices import NO_HEALTHS, Allocatable, Assignment, DeviceHealth, DeviceHealths, DeviceKey, Owners
from exporter.model.pods import AllocatedDevice, Owner, PodsByName
from exporter.ownership.current import same

GRACE_SECONDS = 30.0
MOST_MESSAGE_CHARS = 512  # drivers write it; an object of /container/metrics has some 1,100 characters
_WORDS = ("Unhealthy", "Unknown", "Healthy")  # of several ids of a device the first of these counts
_CLAIM = "claim:"
_NOT_OFFERED = DeviceHealth(word="Unknown", message="its device plugin no longer offers it")
_NOT_OFFERED_OR_UNHEALTHY = DeviceHealth(
    word="Unknown", message="its device plugin no longer offers it, or says that it is unhealthy"
)


NOT_OFFERED = frozenset({_NOT_OFFERED.message, _NOT_OFFERED_OR_UNHEALTHY.message})


class HealthWatch:
    """Remembers how devices were, and since when nobody has offered a device that somebody holds."""

    def __init__(self) -> None:
        self._healths: DeviceHealths = NO_HEALTHS
        self._made_from: tuple[object, ...] = ()
        self._missing_since: Mapping[Assignment, float] = {}
        self._changed_at = self._due_at = 0.0

    @property
    def doubted_at(self) -> float | None:
        """An answer on what is offered has to be asked for after this moment, or it is older than the kubelet's words.

        None while everything is offered that is not called unhealthy: then the words are enough.
        """
        return self._changed_at if self._missing_since else None

    def look(self, owners: Owners, pods: PodsByName, offered: Allocatable | None, at_seconds: float) -> DeviceHealths:
        """By device and holder; the same object as long as nothing changed. What nobody speaks of is left out.

        `pods` are those of the holders, none where pods are not read. `offered` is the kubelet's last answer, None
        where it has not said it.
        """
        made_from = (owners, pods, offered)
        if same(made_from, self._made_from) and at_seconds < self._due_at:
            return self._healths
        if not same(made_from[:2], self._made_from[:2]):
            self._changed_at = at_seconds
        self._made_from = made_from
        words: dict[Owner, Mapping[tuple[str, str], DeviceHealth]] = {}
        missing: dict[Assignment, float] = {}
        by_holder: dict[tuple[DeviceKey, Owner], list[DeviceHealth]] = {}
        for match in owners.matches:
            if match.key is None:
                continue
            held, owner = match.assignment, match.assignment.owner
            if owner not in words:
                pod = pods.get((owner.namespace, owner.pod))
                words[owner] = _words(pod.allocated.get(owner.container, ()) if pod else ())
            names = _names(held) if words[owner] else ()
            health = next((word for name in names if (word := words[owner].get(name))), None)
            if _is_missing(held, offered) and (health is None or health.word != "Unhealthy"):
                missing[held] = self._missing_since.get(held, at_seconds)
                if at_seconds - missing[held] >= GRACE_SECONDS:
                    health = _NOT_OFFERED if health else _NOT_OFFERED_OR_UNHEALTHY
                else:
                    health = self._healths.get((match.key, owner))
            if health is not None:
                by_holder.setdefault((match.key, owner), []).append(health)
        self._missing_since = missing
        waiting = (since + GRACE_SECONDS for since in missing.values())
        self._due_at = min((end for end in waiting if end > at_seconds), default=float("inf"))
        healths = {holder: _worst(of_devices) for holder, of_devices in by_holder.items()}
        if healths != self._healths:
            self._healths = MappingProxyType(healths)
        return self._healths


def _words(allocated: Iterable[AllocatedDevice]) -> Mapping[tuple[str, str], DeviceHealth]:
    """What a container's status says of its devices, by resource and id; the resource of all claims is _CLAIM."""
    words: dict[tuple[str, str], DeviceHealth] = {}
    for each in allocated:
        if each.health:
            name = _CLAIM if each.resource.startswith(_CLAIM) else each.resource, each.device_id
            word = each.health if each.health in _WORDS else "Unknown"
            health = DeviceHealth(word=word, message=each.message[:MOST_MESSAGE_CHARS])
            words[name] = _worst((words.get(name, health), health))
    return words


def _names(held: Assignment) -> Iterable[tuple[str, str]]:
    if held.claim is None:
        return ((held.resource, held.device_id),)
    return ((_CLAIM, name) for name in held.claim.status_names)


def _is_missing(held: Assignment, offered: Allocatable | None) -> bool:
    if offered is None or held.claim is not None:
        return False
    return held.device_id not in offered.get(held.resource, ())


def _worst(healths: Iterable[DeviceHealth]) -> DeviceHealth:
    return min(healths, key=lambda health: _WORDS.index(health.word))
