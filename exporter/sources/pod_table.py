"""The pods of this node as a watch tells of them, ready to be looked up by namespace and name.

A kubelet that has just started tells of no pod at first, and says that this is all: for 0.7 s, or for as long as it
cannot reach the API server (46 s were measured on 1.36). So a pod that was known before the stream was opened anew is
not gone yet. It is awaited until one of these:

- it is told of on the new stream: from then on the stream's word holds for it, at once;
- 10 seconds pass since the first pod that was told of on the new stream;
- a bound passes since a stream first said that there is no pod.

Static pods come from files, so a kubelet that tells of them alone does not show that it has reached the API server.

Nothing here has a clock: every moment comes in as `now`, in seconds of `time.monotonic`.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType

from exporter.attribution.bearers import may_come_again
from exporter.attribution.retention import STALE_WHILE_REFUSED_SECONDS
from exporter.errors import Malformed
from exporter.log import log
from exporter.model.pods import Bearer, Bearers, PodInfo
from exporter.sources.source import Bound

# A kubelet takes 110 pods by default; those that have ended are listed for a while too.
MOST_PODS = 10_000
# Remembered for owners that were listed before the pod was gone: of those a look takes in, a few are enough.
MOST_GONE = 1_000
# A starting kubelet tells of all its pods within 0.1 s of the first (measured on 1.36): a hundred times that.
GRACE_SECONDS = 10.0
ENDED_PHASES = frozenset({"Succeeded", "Failed"})

PodName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Known:
    """A pod, when it was acknowledged as far as the source told, and whether it was the first of its name."""

    pod: PodInfo
    since: float
    is_first: bool

    @property
    def name(self) -> PodName:
        return self.pod.namespace, self.pod.name

    def bearer(self, until: float) -> Bearer:
        return Bearer(pod=self.pod, since=self.since, until=until, is_first=self.is_first)


class PodTable:
    """Pods by UID, those that are awaited among them, and the last ones that are gone."""

    def __init__(self, *, max_silence_seconds: float = STALE_WHILE_REFUSED_SECONDS) -> None:
        """`max_silence_seconds`: how long pods outlive a stream that says that there is none.

        By default as long as owners outlive a kubelet that is down: both wait for a kubelet that comes back.
        """
        self._max_silence_seconds = max_silence_seconds
        self._pods: dict[str, _Known] = {}
        self._awaited: dict[str, None] = {}
        self._gone: dict[str, tuple[_Known, float]] = {}
        self._uids_of: dict[PodName, set[str]] = {}  # of pods that are there and of those that are gone
        self._first_told_at: float | None = None
        self._silent_since: float | None = None
        self._cut_off_since = inf
        self._by_name: Mapping[PodName, PodInfo] | None = None
        self._bearers: Bearers | None = None

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def gone(self) -> int:
        """How many pods that are gone are remembered."""
        return len(self._gone)

    def bounds(self, clock: Callable[[], float]) -> Mapping[str, Bound]:
        """The most that it holds, and what it holds by `clock`."""
        return {
            "pods": Bound(MOST_PODS, lambda: len(self.by_name(now=clock()))),
            "pods_gone": Bound(MOST_GONE, lambda: self.gone),
        }

    def by_name(self, *, now: float) -> Mapping[PodName, PodInfo]:
        """The pods by namespace and name. The same object as long as nothing changed.

        Of several pods of one name (a StatefulSet's pod that was made anew beside the old one) the one that was told
        of last counts, unless it has ended, and one that is awaited only where there is no other.
        """
        self._stop_awaiting(now)
        if self._by_name is None:
            found: dict[PodName, tuple[tuple[bool, bool], PodInfo]] = {}
            for uid, known in self._pods.items():
                rank = (uid not in self._awaited, known.pod.phase not in ENDED_PHASES)
                if known.name not in found or rank >= found[known.name][0]:
                    found[known.name] = (rank, known.pod)
            self._by_name = MappingProxyType({name: pod for name, (_, pod) in found.items()})
        return self._by_name

    def bearers(self, *, now: float) -> Bearers:
        """Who bears a name now, and who did lately, in the order of coming. The same object while nothing changed."""
        self._stop_awaiting(now)
        if self._bearers is None:
            found: dict[PodName, list[Bearer]] = {}
            known_until = (
                (known, self._cut_off_since if may_come_again(known.pod) else inf) for known in self._pods.values()
            )
            for known, until in (*self._gone.values(), *known_until):
                found.setdefault(known.name, []).append(known.bearer(until))
            self._bearers = MappingProxyType({name: tuple(of_name) for name, of_name in found.items()})
        return self._bearers

    def put(self, pod: PodInfo, *, now: float) -> None:
        """A pod is there, or has changed.

        Raises:
            Malformed: there are too many.
        """
        if not pod.is_static or all(self._pods[uid].pod.is_static for uid in self._awaited):
            self._silent_since = None
            self._first_told_at = now if self._first_told_at is None else self._first_told_at
        known = self._pods.get(pod.uid) or self._arrived(pod, now)
        if pod.is_acknowledged and known.since == inf:
            known = replace(known, since=now)
        if known.pod != pod or self._pods.get(pod.uid) is not known:
            # a change keeps its place: the order is that of coming
            self._pods[pod.uid] = replace(known, pod=pod)
            self._by_name = self._bearers = None
        if pod.uid in self._awaited:
            del self._awaited[pod.uid]
            self._by_name = None

    def remove(self, uid: str, *, now: float) -> None:
        """A pod is gone."""
        if uid in self._pods:
            self._let_go(uid, now)

    def cut_off(self, since: float) -> None:
        """The source hears nothing of pods from `since` on (infinity: it does hear of them).

        From then on a name that may come again may be another pod's.
        """
        since = since if since == inf else min(since, self._cut_off_since)
        if since != self._cut_off_since:
            self._cut_off_since, self._bearers = since, None

    def open_stream(self) -> None:
        """A new stream begins: whatever is known, it has not been told of there yet."""
        self._first_told_at = None
        self._awaited = dict.fromkeys(self._pods)
        self._by_name = None

    def end_sync(self, *, now: float) -> None:
        """The stream says that all pods have been told of. With none it may be a kubelet that has just started."""
        if self._first_told_at is None and self._silent_since is None:
            self._silent_since = now

    def replace(self, pods: Iterable[PodInfo], *, now: float) -> None:
        """These are all pods there are: a list is believed at once, but for an empty one.

        The exporter runs in a pod of its node, so whoever lists none does not know yet (an API server that starts
        over): as with a stream, nothing is forgotten before the bound for silence has passed.
        """
        pods = tuple(pods)  # reading one of them may fail: then none was told of
        self.open_stream()
        for pod in pods:
            self.put(pod, now=now)
        self.end_sync(now=now)
        for uid in tuple(self._awaited) if pods else ():
            self._let_go(uid, now)

    def _arrived(self, pod: PodInfo, now: float) -> _Known:
        """A pod that was not there, or was thought to be gone."""
        if len(self._pods) >= MOST_PODS:
            if not self._awaited:
                raise Malformed(
                    "oversize",
                    f"more than {MOST_PODS} pods on one node",
                    remedy="no node runs that many: does what answers know of this node alone?",
                )
            self._let_go(next(iter(self._awaited)), now)
        name = (pod.namespace, pod.name)
        if pod.uid in self._gone:
            return self._gone.pop(pod.uid)[0]
        for uid in self._uids_of.get(name, set()) & self._awaited.keys():
            self._let_go(uid, now)  # its successor is told of, and it is not
        known = _Known(pod, now if pod.is_acknowledged else inf, is_first=name not in self._uids_of)
        self._uids_of.setdefault(name, set()).add(pod.uid)
        return known

    def _stop_awaiting(self, now: float) -> None:
        """Let go of those that are awaited, once their time is over."""
        if self._first_told_at is not None:
            is_over = now - self._first_told_at >= GRACE_SECONDS
        else:
            is_over = self._silent_since is not None and now - self._silent_since >= self._max_silence_seconds
        if not is_over or not self._awaited:
            return
        if self._first_told_at is None:
            log(logging.WARNING, "pods dropped: none is told of", pods=len(self._awaited))
        for uid in tuple(self._awaited):
            self._let_go(uid, now)

    def _let_go(self, uid: str, now: float) -> None:
        known = self._pods.pop(uid)
        self._awaited.pop(uid, None)
        self._gone[uid] = (known, now)
        if len(self._gone) > MOST_GONE:
            oldest = next(iter(self._gone))
            forgotten, _ = self._gone.pop(oldest)
            self._uids_of[forgotten.name].discard(oldest)
            if not self._uids_of[forgotten.name]:
                del self._uids_of[forgotten.name]
        self._by_name = self._bearers = None
