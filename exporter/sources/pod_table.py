"""The pods of this node as a watch tells of them, ready to be looked up by namespace and name."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from exporter.errors import Malformed
from exporter.model import PodInfo

# A kubelet takes 110 pods by default; those that have ended are listed for a while too.
MOST_PODS = 10_000
ENDED_PHASES = frozenset({"Succeeded", "Failed"})


class PodTable:
    """Pods by UID. Between `begin_sync` and `end_sync` nothing is forgotten that may only not have been told yet."""

    def __init__(self) -> None:
        self._pods: dict[str, PodInfo] = {}
        self._told: set[str] | None = None
        self._by_name: Mapping[tuple[str, str], PodInfo] | None = None

    @property
    def by_name(self) -> Mapping[tuple[str, str], PodInfo]:
        """The pods by namespace and name. The same object as long as nothing changed.

        A pod that was made anew under its old name (a StatefulSet's) is there beside the old one for a while: the one
        that was told of last counts, unless it has ended.
        """
        if self._by_name is None:
            found: dict[tuple[str, str], PodInfo] = {}
            for pod in self._pods.values():
                key = (pod.namespace, pod.name)
                if key not in found or pod.phase not in ENDED_PHASES or found[key].phase in ENDED_PHASES:
                    found[key] = pod
            self._by_name = MappingProxyType(found)
        return self._by_name

    def put(self, pod: PodInfo) -> None:
        """A pod is there, or has changed.

        Raises:
            Malformed: there are too many.
        """
        if self._told is not None:
            self._told.add(pod.uid)
        if self._pods.get(pod.uid) != pod:
            if len(self._pods) >= MOST_PODS and pod.uid not in self._pods:
                raise Malformed("oversize", f"more than {MOST_PODS} pods on one node")
            # a change keeps its place: the order is that of coming
            self._pods[pod.uid] = pod
            self._by_name = None

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        if self._pods.pop(uid, None) is not None:
            self._by_name = None

    def begin_sync(self) -> None:
        """All pods are about to be told of."""
        self._told = set()

    def end_sync(self) -> None:
        """All pods have been told of: the others are gone."""
        for uid in self._pods.keys() - (self._told if self._told is not None else self._pods.keys()):
            self.remove(uid)
        self._told = None

    def replace(self, pods: Iterable[PodInfo]) -> None:
        """These are all pods there are."""
        self.begin_sync()
        for pod in pods:
            self.put(pod)
        self.end_sync()
