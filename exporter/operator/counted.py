"""What the operator counts of itself; /metrics shows it."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from exporter.operator.objects.kinds import Key
from exporter.telemetry import Histogram

DURATION_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
RESULTS = ("settled", "waits", "error", "fault")


class Counted:
    """Counters of the process, whatever its configuration becomes."""

    def __init__(self) -> None:
        self.reconciliations: Counter[tuple[str, str]] = Counter()
        self.durations = Histogram(DURATION_BUCKETS_SECONDS)
        self.requests: Counter[tuple[str, str]] = Counter()
        self.watches_ended = 0
        self._objects: dict[Key, int] = {}

    def reconciled(self, kind: str, result: str, seconds: float) -> None:
        """A look at a custom resource of a kind, or at `all`, is over."""
        self.reconciliations[kind, result] += 1
        self.durations.observe(seconds)

    def answered(self, verb: str, code: str) -> None:
        """An answer of the Kubernetes API, or none."""
        self.requests[verb, code] += 1

    def watch_ended(self) -> None:
        """A list or a watch has failed."""
        self.watches_ended += 1

    def keeps(self, owner: Key, objects: int) -> None:
        """A custom resource has so many objects."""
        self._objects[owner] = objects

    def forget(self, owner: Key) -> None:
        """It is gone."""
        self._objects.pop(owner, None)

    def keep_only(self, owners: AbstractSet[Key]) -> None:
        """These are all that there are."""
        for owner in [*self._objects]:
            if owner not in owners:
                del self._objects[owner]

    @property
    def objects(self) -> Mapping[str, int]:
        """How many objects there are of the custom resources of each kind."""
        found: Counter[str] = Counter()
        for owner, objects in self._objects.items():
            found[owner.kind] += objects
        return found

    @property
    def resources(self) -> Mapping[str, int]:
        """How many custom resources there are of each kind."""
        return Counter(owner.kind for owner in self._objects)
