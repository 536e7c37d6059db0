"""The pods of this node, as a watch of the kubelet or of the Kubernetes API reports them.

A kubelet that has just started reports no pod, as if that were all: for 0.7 s, or as long as it cannot reach the API
server (46 s were measured on 1.36). So when a new stream begins, all known pods are awaited until the stream reports
them. A pod that it does not report is dropped 10 seconds after the stream's first pod, or after a limit since a stream
first reported none. A static pod, which comes from a file, counts as first only if all awaited pods are static: the
kubelet may report it without having reached the API server.

Every moment comes in as `now`, in seconds of `time.monotonic`.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import Protocol

from exporter import log
from exporter.errors import Malformed
from exporter.model.nothing import NOTHING
from exporter.model.pods import (
    CUT,
    MOST_ANNOTATION_CHARS,
    ContainerEnd,
    PodContainer,
    PodInfo,
    PodName,
    PodOfName,
    PodsByName,
    PodsOfNames,
)
from exporter.model.snapshot import PODS, Health
from exporter.ownership.pods_of_names import may_come_again
from exporter.ownership.retention import STALE_WHILE_REFUSED_SECONDS
from exporter.sources.source import Attempt, Bound, Bounds, Clock, NoSource, OnHealth, Source

# A kubelet takes 110 pods by default; those that have ended are listed for a while too.
MOST_PODS = 10_000
# Pods that are gone stay for owners that were listed before. A look needs only a few of them.
MOST_GONE = 1_000
# A starting kubelet reports all its pods within 0.1 s of the first (measured on 1.36). This is a hundred times that.
GRACE_SECONDS = 10.0
ENDED_PHASES = frozenset({"Succeeded", "Failed"})
# A watch that goes on after a break sends at once what it has missed. This is a hundred times as long.
CATCH_UP_SECONDS = 1.0


def annotations_among(annotations: Mapping[str, str], wanted: AbstractSet[str]) -> Mapping[str, str]:
    """The wanted ones of a pod's annotations. A text that is too long is cut (`PodInfo`)."""
    kept = {key: annotations[key] for key in annotations.keys() & wanted}
    return {key: _cut(text) for key, text in sorted(kept.items())} if kept else NOTHING


def _cut(text: str) -> str:
    return text if len(text) <= MOST_ANNOTATION_CHARS else text[:MOST_ANNOTATION_CHARS] + CUT


def container_of_spec(name: str, limits: Iterable[str], *, is_init: bool) -> PodContainer:
    """A container of a pod's spec. `limits` are the names of all resources that its limits name."""
    return PodContainer(name=name, is_init=is_init, resources=frozenset(name for name in limits if "/" in name))


@dataclass(frozen=True, slots=True, kw_only=True)
class PodStop:
    """What says that a pod was ended by others: its status' reason, and when its deletion was asked for.

    A kubelet gives a reason (Evicted, Preempting, Terminated, DeadlineExceeded) only to a pod that it ends. `asked_at`
    is in seconds since 1970: the deletionTimestamp less the grace period; None: nobody deletes it.
    """

    reason: str = ""
    asked_at: float | None = None

    def is_before(self, at_seconds: float) -> bool:
        """Whether the pod was to end at this moment. Both moments are whole seconds: in doubt it was."""
        return bool(self.reason) or (self.asked_at is not None and self.asked_at <= at_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Termination:
    """A ContainerStateTerminated. `at_seconds` is None without a finishedAt; then nobody saw the container end."""

    id: str
    exit_code: int
    reason: str
    at_seconds: float | None


def end_of_container(terminations: Iterable[Termination | None], stop: PodStop) -> ContainerEnd | None:
    """The last end of a container. `terminations` are those of its state and of its lastState."""
    for terminated in terminations:
        if terminated is not None and terminated.at_seconds:
            return ContainerEnd(
                id=terminated.id,
                exit_code=terminated.exit_code,
                reason=terminated.reason,
                at_seconds=terminated.at_seconds,
                is_ordered=stop.is_before(terminated.at_seconds),
            )
    return None


@dataclass(frozen=True, slots=True)
class _KeptPod:
    """A pod, when the source first reported it as acknowledged, and whether it was the first pod with its name."""

    pod: PodInfo
    since: float
    is_first: bool

    @property
    def name(self) -> PodName:
        return self.pod.namespace, self.pod.name

    def named(self, until: float) -> PodOfName:
        return PodOfName(pod=self.pod, since=self.since, until=until, is_first=self.is_first)


class PodTable:
    """The present pods by UID (awaited pods are among them), and the last pods that are gone."""

    def __init__(
        self, *, max_silence_seconds: float = STALE_WHILE_REFUSED_SECONDS, is_of_kubelet: bool = False
    ) -> None:
        """`max_silence_seconds` is the time for which pods outlive a stream that reports none.

        Its default is the time for which owners outlive a kubelet that is down: both wait for the kubelet to come back.
        `is_of_kubelet`: the kubelet itself tells of pods. Its stream breaks off when it restarts, and meanwhile no pod
        is made anew: so pods keep their names, and are only doubted.
        """
        self._is_of_kubelet = is_of_kubelet
        self._max_silence_seconds = max_silence_seconds
        self._pods: dict[str, _KeptPod] = {}
        self._awaited: dict[str, None] = {}
        self._gone: dict[str, tuple[_KeptPod, float]] = {}
        self._uids_of: dict[PodName, set[str]] = {}  # of present pods and of pods that are gone
        self._first_told_at: float | None = None
        self._silent_since: float | None = None
        self._cut_off_since = inf
        self._awaited_since = inf
        self._hears_from = inf
        self._by_name: PodsByName | None = None
        self._pods_of_names: PodsOfNames | None = None

    def __len__(self) -> int:
        return len(self._pods)

    def bounds(self, clock: Clock) -> Bounds:
        """The limits on pods, and the present numbers at the time of `clock`."""
        return {
            "pods": Bound(MOST_PODS, lambda: len(self.by_name(now=clock()))),
            "pods_gone": Bound(MOST_GONE, lambda: len(self._gone)),
        }

    def by_name(self, *, now: float) -> PodsByName:
        """The pods by namespace and name. The same object as long as nothing changed.

        If several pods have a name, the pod that was reported last counts, unless it has ended. An awaited pod counts
        only if there is no other.
        """
        self._stop_awaiting(now)
        if self._by_name is None:
            best: dict[PodName, tuple[tuple[bool, bool], PodInfo]] = {}
            for uid, kept in self._pods.items():
                rank = (uid not in self._awaited, kept.pod.phase not in ENDED_PHASES)
                if kept.name not in best or rank >= best[kept.name][0]:
                    best[kept.name] = (rank, kept.pod)
            self._by_name = MappingProxyType({name: pod for name, (_, pod) in best.items()})
        return self._by_name

    def pods_of_names(self, *, now: float) -> PodsOfNames:
        """The pods that have a name or had it lately, oldest first. The same object as long as nothing changed."""
        self._stop_awaiting(now)
        if now >= self._hears_from:
            self.hear_all()
        if self._pods_of_names is None:
            pods_of_names: dict[PodName, list[PodOfName]] = {}
            known_until = ((kept, self._known_until(kept.pod)) for kept in self._pods.values())
            for kept, until in self._gone.values():
                pods_of_names.setdefault(kept.name, []).append(replace(kept.named(until), is_gone=True))
            for kept, until in known_until:
                named = replace(kept.named(inf), doubted_since=until) if self._is_of_kubelet else kept.named(until)
                pods_of_names.setdefault(kept.name, []).append(named)
            self._pods_of_names = MappingProxyType({name: tuple(of_name) for name, of_name in pods_of_names.items()})
        return self._pods_of_names

    def put(self, pod: PodInfo, *, now: float) -> None:
        """Note a pod that is new or has changed. Raises Malformed: there are too many pods."""
        if not pod.is_static or all(self._pods[uid].pod.is_static for uid in self._awaited):
            self._silent_since = None
            self._first_told_at = now if self._first_told_at is None else self._first_told_at
        kept = self._pods.get(pod.uid) or self._arrived(pod, now)
        if pod.is_acknowledged and kept.since == inf:
            kept = replace(kept, since=now)
        if kept.pod != pod or self._pods.get(pod.uid) is not kept:
            # a changed pod keeps its place: pods are in the order in which they came
            self._pods[pod.uid] = replace(kept, pod=pod)
            self._by_name = self._pods_of_names = None
        if pod.uid in self._awaited:
            del self._awaited[pod.uid]
            self._by_name = None
            if self._awaited_since < inf:
                self._pods_of_names = None

    def remove(self, uid: str, *, now: float) -> None:
        """Note that a pod is gone."""
        if uid in self._pods:
            self._let_go(uid, now)

    def cut_off(self, now: float) -> None:
        """Note that the source hears nothing from now on, until `hear_again` or `hear_all`.

        Meanwhile another pod may take a name that can come again, such as a StatefulSet's.
        """
        self._hears_from = inf
        self._note_cut_off(min(now, self._cut_off_since))

    def hear_again(self, now: float) -> None:
        """Note that the source goes on where it was cut off, and is now told of what it has missed."""
        if self._cut_off_since < inf:
            self._hears_from = min(self._hears_from, now + CATCH_UP_SECONDS)

    def hear_all(self) -> None:
        """Note that the source has heard of everything, but of awaited pods."""
        self._hears_from = inf
        self._note_cut_off(inf)

    def _note_cut_off(self, since: float) -> None:
        if since != self._cut_off_since:
            self._cut_off_since = since
            self._pods_of_names = None

    def _known_until(self, pod: PodInfo) -> float:
        """Since when a present pod's name may mean another pod; infinity: it does not."""
        if not may_come_again(pod):
            return inf
        return min(self._cut_off_since, self._awaited_since) if pod.uid in self._awaited else self._cut_off_since

    def open_stream(self) -> None:
        """Note that a new stream begins, which has reported no pod yet.

        Pods that it does not report may be gone since the source was cut off.
        """
        self._first_told_at = None
        self._awaited_since = min(self._cut_off_since, self._awaited_since if self._awaited else inf)
        self._awaited = dict.fromkeys(self._pods)
        self._by_name = self._pods_of_names = None

    def end_sync(self, *, now: float) -> None:
        """Note that the stream has reported all pods. If it reported none, the kubelet may have just started."""
        if self._first_told_at is None and self._silent_since is None:
            self._silent_since = now

    def replace(self, pods: Iterable[PodInfo], *, now: float) -> None:
        """Note the whole list of pods. A list counts at once, unless it is empty.

        The exporter itself runs in a pod of its node, so an API server that lists no pod has just started: as with a
        stream, pods are kept until the limit for silence has passed.
        """
        pods = tuple(pods)  # if the reading of a pod fails, none counts
        self.open_stream()
        for pod in pods:
            self.put(pod, now=now)
        self.end_sync(now=now)
        for uid in tuple(self._awaited) if pods else ():
            self._let_go(uid, now)
        self.hear_all()

    def _arrived(self, pod: PodInfo, now: float) -> _KeptPod:
        """The entry of a pod that is new, or that comes back after it counted as gone."""
        if len(self._pods) >= MOST_PODS:
            if not self._awaited:
                remedy = "no node runs that many: does what answers know of this node alone?"
                raise Malformed("oversize", f"more than {MOST_PODS} pods on one node", remedy=remedy)
            self._let_go(next(iter(self._awaited)), now)
        name = (pod.namespace, pod.name)
        if pod.uid in self._gone:
            return self._gone.pop(pod.uid)[0]
        for uid in self._uids_of.get(name, set()) & self._awaited.keys():
            self._let_go(uid, now)  # the stream reports its successor, and not the pod itself
        kept = _KeptPod(pod, now if pod.is_acknowledged else inf, is_first=name not in self._uids_of)
        self._uids_of.setdefault(name, set()).add(pod.uid)
        return kept

    def _stop_awaiting(self, now: float) -> None:
        if self._first_told_at is not None:
            is_over = now - self._first_told_at >= GRACE_SECONDS
        else:
            is_over = self._silent_since is not None and now - self._silent_since >= self._max_silence_seconds
        if not is_over or not self._awaited:
            return
        if self._first_told_at is None:
            log.warning("pods dropped: none is told of", pods=len(self._awaited))
        for uid in tuple(self._awaited):
            self._let_go(uid, now)

    def _let_go(self, uid: str, now: float) -> None:
        kept = self._pods.pop(uid)
        # it may have gone at any moment since nobody has heard of it
        until = now if self._is_of_kubelet else min(now, self._known_until(kept.pod))
        self._awaited.pop(uid, None)
        self._gone[uid] = (kept, until)
        if len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            forgotten, _ = self._gone.pop(oldest)
            self._uids_of[forgotten.name].discard(oldest)
            if not self._uids_of[forgotten.name]:
                del self._uids_of[forgotten.name]
        self._by_name = self._pods_of_names = None


class Pods(Source, Protocol):
    """A source of pods."""

    @property
    def pods(self) -> PodsByName:
        """The pods by namespace and name; the same object as long as nothing changed."""

    @property
    def pods_of_names(self) -> PodsOfNames:
        """The pods that have or had each name; the same object as long as nothing changed."""


class NoPods(NoSource):
    """The placeholder of a source of pods, if there is none."""

    pods: PodsByName = NOTHING
    pods_of_names: PodsOfNames = NOTHING

    def __init__(self, health: Health, on_health: OnHealth) -> None:
        """`health` says why there is none. If it is down, pods are required, and `on_health` is called."""
        super().__init__(PODS, health, PodTable().bounds(lambda: 0.0))
        self._on_health = on_health

    def miss(self, health: Health) -> None:
        """Take a health that says who needs pods, unless another one says so already."""
        if self.health.up is None:
            self.health = health

    def begin(self) -> Attempt | None:
        """Begin nothing. A health that is down is reported each time."""
        if self.health.up is False:
            self._on_health(self.name, self.health)
        return None
