"""The last answer of each node's exporter, and the view of the cluster that follows from them. Without I/O.

A node is missing if its exporter has not answered yet, or if its last answer is too old. Until then, a failure changes
nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from math import inf
from types import MappingProxyType

from exporter.cluster.exporters.node_answer import MOST_ROWS, NodeAnswer
from exporter.errors import SourceError, Trouble
from exporter.model.cluster_view import ClusterView, NodeEvent, NodeView
from exporter.model.name_order import as_people_count
from exporter.ownership.kernel_events import MOST_EVENTS
from exporter.sources.cluster_source import ExporterPlace
from exporter.sources.exporters.asking import MemoryBudget
from exporter.sources.source import Bound, Bounds
from exporter.wording import listed

# The time for which a node is missing after its exporter's place is gone. The node may still be there: an update of
# a DaemonSet deletes a pod before it creates the next one. Without the node, the cluster's sums would be too small, and
# nobody would notice.
LEFT_SECONDS = 120.0
# The time for which it is not believed that there are suddenly no places: an API server may start with empty lists.
EMPTY_SECONDS = 600.0
MOST_NODES = 5_000
# The most memory, about, for all kept answers: those of 500 nodes with 8 GPUs take 12 MiB, those of 5,000 125 MiB.
MOST_KEPT_BYTES = 128 * 1024 * 1024
_NAMED = 5

_NOT_ASKED = Trouble("missing", "its exporter has not answered yet", "it is being asked; look again in some seconds")
_LOST = Trouble(
    "oversize",
    f"all answers together are more than {MOST_KEPT_BYTES} bytes, and its answer is the largest",
    "look at what that address answers to curl; for a cluster as large as that, use --cluster.prometheus",
)


@dataclass(slots=True, kw_only=True, eq=False)
class KnownExporter:
    """An exporter: its place, its last answer and failure. Moments are seconds by the clock of `KnownExporters`.

    Attributes:
        claimed: the name of its node in its first answer, in case its place does not tell the name.
        answered: the moment of its last answer.
        answered_at_seconds: the same since 1970.
        failure: the reason why it has not answered since.
        left: the moment at which its place was gone, `inf` if it is there.
        newest_event: the exporter's name for the newest of the events that it told.
        has_events: whether its events are up to date: False after it failed to tell newer ones.
        shown: the node as the view shows it, None if it must be made again.
    """

    key: str
    place: ExporterPlace
    claimed: str = ""
    answer: NodeAnswer | None = None
    answered: float = -inf
    answered_at_seconds: float = 0.0
    failure: Trouble | None = None
    left: float = inf
    newest_event: str = ""
    has_events: bool = True
    shown: NodeView | None = None

    @property
    def has_left(self) -> bool:
        """Whether the exporter's place is gone."""
        return self.left < inf

    @property
    def node(self) -> str | None:
        """The name of the exporter's node; None as long as it is not known."""
        return self.key if self.place.is_named else self.claimed or None


class KnownExporters:
    """The exporters of a cluster by their places."""

    def __init__(self, *, max_age_seconds: float, looked_for: str) -> None:
        self.entries: dict[str, KnownExporter] = {}
        self._max_age_seconds = max_age_seconds
        self._looked_for = looked_for
        self._kept = MemoryBudget(MOST_KEPT_BYTES)
        self._empty_since = inf
        self._too_many: Trouble | None = None
        self._view: ClusterView | None = None
        self._events: Sequence[NodeEvent] = ()
        self._until = -inf

    @property
    def bounds(self) -> Bounds:
        """The number of nodes, the memory of all answers, and the rows of the largest one, with their limits."""
        return {
            "nodes": Bound(MOST_NODES, lambda: len(self.entries)),
            "answers_kept_bytes": Bound(MOST_KEPT_BYTES, lambda: self._kept.used),
            "node_rows": Bound(MOST_ROWS, lambda: max((len(node.devices) for node in self._answers()), default=0)),
        }

    def verdict(self) -> tuple[SourceError | None, Trouble | None]:
        """The failure if no exporter answers; the trouble if some do not."""
        failed = [entry for entry in self.entries.values() if entry.failure]
        if not failed or failed[0].failure is None:
            return None, None
        why = failed[0].failure
        names = listed([entry.node or entry.key for entry in failed], _NAMED)
        they = f"{len(failed)} of {len(self.entries)} node exporters do not answer as they should"
        message = f"{they}: {names}; the first one: {why.message}"
        if len(failed) < len(self.entries):
            return None, replace(why, message=message)
        return SourceError(why.reason, message, remedy=why.remedy), None

    def follow(self, places: Mapping[str, ExporterPlace], now: float) -> list[KnownExporter]:
        """Take over the present places. Return the exporters to ask at once, since they are new or have moved."""
        if places or not self.entries:
            self._empty_since = inf
        elif now - (since := min(self._empty_since, now)) < EMPTY_SECONDS:
            self._empty_since = since
            return []
        followed = places if len(places) <= MOST_NODES else dict(islice(places.items(), MOST_NODES))
        self._too_many = None
        if followed is not places:
            message = f"there are {len(places)} node exporters; at most {MOST_NODES} are asked"
            remedy = "let Prometheus scrape them, and ask that: --cluster.prometheus URL"
            self._too_many = Trouble("oversize", message, remedy)
        moved = []
        for key, place in followed.items():
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = KnownExporter(key=key, place=place)
                moved.append(entry)
            elif entry.place != place or entry.has_left:
                if entry.place.url != place.url:
                    moved.append(entry)
                entry.place = place
                entry.left = inf
                self._change(entry)
        for entry in [entry for key, entry in self.entries.items() if key not in followed]:
            self._leave(entry, now)
        if moved:
            self._view = None
        return moved

    def answered(self, entry: KnownExporter, answer: NodeAnswer, now: float, now_seconds: float) -> None:
        """Note an exporter's answer; `now_seconds` counts from 1970."""
        if self.entries.get(entry.key) is not entry:
            return
        entry.answer = answer
        entry.answered = now
        entry.answered_at_seconds = now_seconds
        entry.claimed = entry.claimed or answer.node
        entry.failure = None
        self._change(entry)
        self._kept.hold(entry, answer.kept_bytes, partial(self._lose, entry))

    def heard(self, entry: KnownExporter, newest: str, events: Iterable[NodeEvent] | None) -> None:
        """Note an exporter's events, None if it did not tell them. `newest` is its name for the newest one.

        The last events of all nodes are kept.
        """
        if events is not None:
            every = {event.text: event for event in (*self._events, *events)}.values()
            self._events = sorted(every, key=lambda event: event.at_seconds, reverse=True)[:MOST_EVENTS]
            entry.newest_event = newest
        entry.has_events = events is not None
        self._view = None

    def failed(self, entry: KnownExporter, trouble: Trouble) -> None:
        """Note that an exporter did not answer, or not as it should."""
        if entry.failure != trouble:
            entry.failure = trouble
            if entry.shown is None or entry.shown.is_missing:
                self._change(entry)

    def _lose(self, entry: KnownExporter) -> None:
        entry.answer = None
        entry.answered = -inf
        entry.failure = _LOST
        self._change(entry)

    def view(self, now: float, now_seconds: float, unknown: Trouble | None) -> ClusterView:
        """The cluster: the same object as long as only ages have changed.

        `unknown` is the reason why its nodes are not known.
        """
        trouble = unknown or self._too_many
        if not trouble and not self.entries:
            message = f"there is no node exporter: {self._looked_for} names none"
            remedy = "is the DaemonSet there, and does it have pods? Are the names right?"
            trouble = Trouble("missing", message, remedy)
        if self._view is None or now >= self._until or self._view.trouble != trouble:
            nodes = self._nodes(now)
            self._view = ClusterView(
                nodes=MappingProxyType({name: nodes[name] for name in sorted(nodes, key=as_people_count)}),
                at_seconds=now_seconds,
                trouble=trouble,
                events=tuple(self._events),
                without_events=tuple(entry.node or key for key, entry in self.entries.items() if not entry.has_events),
            )
        return self._view

    def _nodes(self, now: float) -> dict[str, NodeView]:
        """The nodes by name. `_until` becomes the moment at which the first of their answers is too old."""
        self._until = inf
        nodes: dict[str, NodeView] = {}
        # a name from a place counts more than one that an exporter tells
        for entry in sorted(self.entries.values(), key=lambda entry: not entry.place.is_named):
            expires = entry.answered + self._max_age_seconds
            is_missing = now >= expires
            if not is_missing:
                self._until = min(self._until, expires)
            if entry.shown is None or entry.shown.is_missing is not is_missing:
                entry.shown = self._shown(entry, is_missing=is_missing)
            shown = entry.shown
            if shown.name in nodes:
                message = f"it answers as the node {shown.name}, whose exporter is another one"
                remedy = (
                    f"give each exporter its node's name (NODE_NAME), and name it here: --cluster.node {shown.name}=URL"
                )
                shown = NodeView(name=entry.key, trouble=Trouble("garbage", message, remedy))
            nodes[shown.name] = shown
        return nodes

    def _shown(self, entry: KnownExporter, *, is_missing: bool) -> NodeView:
        """The view of a node. If its answer is missing or too old, the trouble says why none came."""
        answered_at = None if entry.answer is None else entry.answered_at_seconds
        trouble = None
        if is_missing:
            why = entry.failure or _NOT_ASKED
            message = why.message
            if entry.place.caution:
                message += f"; {entry.place.caution}"
            if answered_at is not None:
                message += f"; its last answer is of {datetime.fromtimestamp(answered_at, UTC):%Y-%m-%dT%H:%M:%SZ}"
            trouble = replace(why, message=message)
        return NodeView(
            name=entry.node or entry.key,
            devices=entry.answer.devices if entry.answer else (),
            answered_at_seconds=answered_at,
            trouble=trouble,
        )

    def _leave(self, entry: KnownExporter, now: float) -> None:
        """Note that an exporter's place is gone. After LEFT_SECONDS, forget the exporter."""
        if not entry.has_left:
            entry.left = now
            message = f"its exporter is gone from {self._looked_for}"
            later = f"if the node is gone, too, it is forgotten after {LEFT_SECONDS:g} s"
            self.failed(entry, Trouble("missing", message, f"{later}; if it is there, look why no exporter runs on it"))
        elif now - entry.left >= LEFT_SECONDS:
            del self.entries[entry.key]
            self._kept.free(entry)
            self._view = None

    def _answers(self) -> Iterable[NodeAnswer]:
        return (entry.answer for entry in self.entries.values() if entry.answer)

    def _change(self, entry: KnownExporter) -> None:
        entry.shown = self._view = None
