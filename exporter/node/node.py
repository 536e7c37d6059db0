"""The node role, wired together: the one place that knows every part.

kubelet ──► assignments ──► owners ─┐
dcgm-exporter(s) ──► pages ─────────┴─► join ──► Snapshot ──► outputs, by way of web
"""

import asyncio
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from exporter.attribution.bearers import Listing
from exporter.attribution.current import NO_BEARERS, NO_SLICES, CurrentOwners
from exporter.attribution.owners import Unmatched, needs_slices, read_assignment
from exporter.attribution.rows import Attribution
from exporter.attribution.sharing import MOST_SERIES
from exporter.attribution.slice_retention import MOST_KEPT
from exporter.config.named_files import NodeFiles
from exporter.config.node import Config
from exporter.config.parsers import LABEL_SETS
from exporter.errors import SourceError, Trouble
from exporter.exposition.check import MOST_LINES
from exporter.exposition.join import Joiner
from exporter.exposition.legacy import with_gpu_health
from exporter.log import debug
from exporter.model.devices import Assignment, Inventory, Owners
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.model.snapshot import Facts, Health, Snapshot
from exporter.node import build
from exporter.node.joins import Joins
from exporter.sources.kubelet.assignments import NAME as KUBELET
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubelet.pod_resources import MOST_ASSIGNMENTS
from exporter.sources.kubelet.pods import NAME as PODS
from exporter.sources.kubernetes.slices import MOST_SLICES
from exporter.sources.kubernetes.workloads import MOST_PODS as MOST_WORKLOADS
from exporter.sources.pages.discovery import MOST_FOUND, Discovery
from exporter.sources.pages.file import PromFileSource
from exporter.sources.pod_table import MOST_GONE, MOST_PODS
from exporter.sources.slices import in_slices
from exporter.telemetry import Telemetry

KUBELET_PATIENCE_SECONDS = 0.5
DISCOVERY_PATIENCE_SECONDS = 5.0
NOTHING_FOUND = "dcgm:discovery"
READY_PROBE_PATIENCE_SECONDS = 0.9  # the kubelet gives a probe 1 s by default
_NO_INVENTORY = Inventory()
_NO_SUBJECTS: Mapping[Subject, int] = {}


class Node:
    """Reads the sources when asked, joins what they say, and keeps what can be reused until the next time."""

    def __init__(
        self, config: Config, files: NodeFiles, *, divides_counters: bool = True, before: "Node | None" = None
    ) -> None:
        """`before` is the node of the configuration until now: what the new one does not change goes on.

        `divides_counters` is off where only one page will be made: a counter's increases need two.

        Raises:
            ConfigError: the rules for devices, or the inventory, cannot be used.
        """
        self.telemetry: Telemetry = before.telemetry if before else Telemetry()
        self.instance: str = before.instance if before else f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self.config = config
        self.sources: build.Sources = build.Sources(self.telemetry.note_health, before.sources if before else None)
        rules = build.device_rules(config, files.rules)
        policy = build.label_policy(config, rules, divides_counters=divides_counters)
        pod_labels = build.pod_label_policy(config)
        same_sharing = before is not None and before.config.sharing.mode == config.sharing.mode
        book = before.current.book if before and same_sharing else None
        known_pods = before.current.pods_of_owners if before else None
        self.current: CurrentOwners = CurrentOwners(policy, pod_labels, rules.rules, book, known_pods, config.node.name)
        self._kubelet = build.kubelet_source(config, self.sources)
        self._pages = build.page_sources(config, files.http, self.instance, self.sources)
        self._discovery = build.discovery(config, files.http, self.instance, self.sources)
        self._inventory = build.inventory_source(config, self.sources)
        self._needs_pods = pod_labels is not None or self._discovery is not None
        # otherwise begun with the first scrape: by then the kubelet may have made its socket
        self._pods = (
            build.pods_source(config, self.sources) if before and (self._needs_pods or before.wants_workloads) else None
        )
        self._workloads = build.workloads_source(config, self.sources)
        # begun by the first who asks for them
        self.wants_workloads: bool = before is not None and before.wants_workloads
        # with --dra auto begun by the first claim that needs them
        goes_on = before is not None and before.reads_slices
        self._slices = build.slices_source(config, self.sources) if config.devices.dra == "on" or goes_on else None
        self._claims_seen_in: frozenset[Assignment] = frozenset()
        # what NVIDIA's own exporter of these label names served
        self._adds_gpu_health = config.labels.names == LABEL_SETS["legacy"]
        wanted = build.family_filter(config.families.allow, config.families.deny)
        self._joins = Joins(
            lambda: Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=wanted)
        )
        self._joining = asyncio.Lock()  # a large page is joined in slices, and a joiner does one at a time
        self._facts: Facts | None = None
        self._facts_from: tuple[object, ...] = ()
        # an unchanged file is the same page again, every other read is another one
        self._keeps_joined = not self._discovery and all(isinstance(found, PromFileSource) for found in self._pages)
        self._noted: Owners | None = None
        self.not_ready: str = before.not_ready if before else "no page has been asked for yet"
        self._looking = 0
        self._nobody_looks = asyncio.Event()
        self.sources.settle()
        self._show_bounds()
        # last, since from here on the sources of `before` are this node's
        self._kubelet.read = lambda assignment: read_assignment(assignment, self.current.knowledge)

    @property
    def reads_slices(self) -> bool:
        """Whether ResourceSlices are read."""
        return self._slices is not None

    async def close(self) -> None:
        """End what is in flight."""
        await asyncio.gather(*(source.close() for source in self.sources.all()))

    async def hear_watches(self, seconds: float) -> None:
        """Wait for the first word of every stream that is kept open, be it a failure, and no longer than `seconds`."""
        waiting = self._begin_watches()
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    async def give_way(self, successor: "Node") -> None:
        """Let the scrapes in flight end, then close what the successor does not go on with."""
        while self._looking:
            self._nobody_looks.clear()
            await self._nobody_looks.wait()
        await asyncio.gather(*(source.close() for source in self.sources.not_in(successor.sources)))

    async def collect(self, wait_seconds: float | None, *, workloads: bool = False) -> Snapshot:
        """Ask every source at once, wait no longer than `wait_seconds` (None: their own timeouts), join.

        With `workloads`, say what the pods belong to as well.
        """
        self._looking += 1
        try:
            if not workloads:
                return await self._collect(wait_seconds)
            began = time.monotonic()
            self.wants_workloads = True
            snapshot = await self._collect(wait_seconds)
            return replace(snapshot, workloads=await self._workloads_of(snapshot, wait_seconds, began))
        finally:
            self._looking -= 1
            if not self._looking and not self._keeps_joined:
                # what scrapes at one time share: of a large node it is 4 MB
                self._joins.let_go_of_pages()
            self._nobody_looks.set()

    async def _collect(self, wait_seconds: float | None) -> Snapshot:
        began = time.monotonic()
        call = self._kubelet.begin()
        watched = self._begin_watches()
        if watched and self._discovery:
            # who is to be asked is not known before
            await asyncio.wait(watched, timeout=_left(DISCOVERY_PATIENCE_SECONDS, wait_seconds, began))
        page_sources = self._page_sources()
        reads = tuple(source.begin() for source in page_sources)
        for source, read in zip(page_sources, reads, strict=True):
            if not read.done():
                await source.wait(_left(None, wait_seconds, began))
        if call is not None:
            # Once owners are known, a scrape does not wait long for newer ones.
            patience = KUBELET_PATIENCE_SECONDS if self._kubelet.assignments else wait_seconds
            await asyncio.wait((call,), timeout=_left(patience, wait_seconds, began))
        watched += self._begin_slices()
        if watched:
            # The first page had better say all: what comes later is another series.
            await asyncio.wait(watched, timeout=_left(KUBELET_PATIENCE_SECONDS, wait_seconds, began))
        waited = time.monotonic() - began
        if self._discovery:
            # the pods of some may have gone while they were asked
            here = tuple(
                (source, read) for source, read in zip(page_sources, reads, strict=True) if not read.cancelled()
            )
            page_sources, reads = tuple(source for source, _ in here), tuple(read for _, read in here)
        health = {KUBELET: _health_of(call, self._kubelet, waited) if call else self._kubelet.health}
        pages = []
        for source, read in zip(page_sources, reads, strict=True):
            health[source.name] = _health_of(read, source, waited)
            if health[source.name].up:
                # Not the page of a while ago where another scrape has had a newer one: counters must not go back.
                page = source.page or read.result()
                pages.append(page)
                debug("page", source=source.name, bytes=len(page.body), up=True)
            else:
                debug("page", source=source.name, up=False, reason=health[source.name].reason)
        inventory = self._inventory.refresh() if self._inventory else _NO_INVENTORY
        names = tuple(source.name for source in page_sources)
        everyone_answered = all(read.done() for read in reads)
        async with self._joining:
            joined = await self._join(tuple(pages), names, inventory)
        health |= self._other_health()
        if self._discovery and not page_sources:
            health[NOTHING_FOUND] = self._nothing_found(self._discovery, health.get(PODS))
            self.telemetry.note_health(NOTHING_FOUND, health[NOTHING_FOUND])
            names = (NOTHING_FOUND,)
        snapshot = Snapshot(
            node=self.config.node.name,
            owners=self.current.owners,
            joined=joined,
            health=health,
            assignments_age_seconds=self._kubelet.age_seconds,
            page_sources=names,
            facts=self._facts_now(),
            read_at_seconds=min((page.read_at_seconds for page in pages), default=None),
            inventory=inventory,
            attribute=self.current.attribution,
        )
        self._note(snapshot, everyone_answered=everyone_answered)
        return snapshot

    def _facts_now(self) -> Facts:
        """They move with the kubelet's answers, not with the scrapes."""
        slice_devices = self._slices.devices if self._slices else NO_SLICES
        slices_up = self._slices.health.up is not False if self._slices else None
        answered = (self._kubelet.outside, self._kubelet.version)
        made_from = (*answered, self.current.label_problems, slice_devices, slices_up)
        if self._facts is None or not _same(made_from, self._facts_from):
            self._facts_from = made_from
            self._facts = Facts(
                resources=self.config.devices.resources,
                outside=self._kubelet.outside,
                incoming_wins=self.config.labels.incoming_wins,
                has_inventory=self._inventory is not None,
                kubelet_version=self._kubelet.version,
                label_problems=self.current.label_problems,
                node_is_named=self.config.node.is_named,
                follows_claims=self.config.devices.dra != "off",
                slice_devices=slice_devices,
                slices_up=slices_up,
            )
        return self._facts

    async def _workloads_of(
        self, snapshot: Snapshot, wait_seconds: float | None, began: float
    ) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Of the pods that the rows can name: those that hold devices, and those that a page came with."""
        pods, of_owners = (self._pods.pods if self._pods else {}), self.current.pods_of_owners.pods
        holders = {(match.assignment.owner.namespace, match.assignment.owner.pod) for match in snapshot.owners.matches}
        named = set[tuple[str, str]]()
        for subject in snapshot.joined.subjects if snapshot.joined else ():
            named |= {(owner.namespace, owner.pod) for owner in (subject.came_with, subject.exported) if owner}
        known = [*of_owners.values(), *(pods[key] for key in named - holders if key in pods)]
        waiting = self._workloads.begin(known)
        if waiting:
            await asyncio.wait(waiting, timeout=_left(KUBELET_PATIENCE_SECONDS, wait_seconds, began))
        found = ((pod, self._workloads.of(pod)) for pod in known)
        return {(pod.namespace, pod.name): (what.name, what.kind) for pod, what in found if what}

    async def why_not_ready(self) -> str:
        """The reason, or "" once a page could be made with the kubelet's word, and from then on."""
        if self.not_ready:
            await self.collect(READY_PROBE_PATIENCE_SECONDS)
        return self.not_ready

    def _show_bounds(self) -> None:
        bound = self.telemetry.bound
        pages = len(self._pages) + (MOST_FOUND if self._discovery else 0)
        # of the pages of all, and of some for whoever got no more (joins.py)
        bound("series", MOST_LINES * (2 * pages - 1), lambda: self._joins.series)
        bound("assignments", MOST_ASSIGNMENTS, lambda: len(self._kubelet.assignments))
        bound("divided_counters", MOST_SERIES, lambda: self.current.book.series)
        bound("resourceslices", MOST_SLICES, lambda: self._slices.count if self._slices else 0)
        bound("resourceslice_devices_kept", MOST_KEPT, lambda: self._slices.kept if self._slices else 0)
        bound("workloads", MOST_WORKLOADS, lambda: len(self._workloads))
        bound("pods", MOST_PODS, lambda: len(self._pods.pods) if self._pods else 0)
        bound("pods_gone", MOST_GONE, lambda: self._pods.gone if self._pods else 0)

    def _begin_watches(self) -> tuple[asyncio.Task[None], ...]:
        """Keep the watches open; those whose first word is still awaited."""
        if (self._needs_pods or self.wants_workloads) and self._pods is None:
            self._pods = build.pods_source(self.config, self.sources)
        begun = (source.begin() for source in (self._pods, self._slices) if source is not None)
        return tuple(waiting for waiting in begun if waiting is not None)

    def _begin_slices(self) -> tuple[asyncio.Task[None], ...]:
        """With --dra auto, read ResourceSlices from the first claim on that needs them; what is then waited for."""
        assignments = self._kubelet.assignments
        if self._slices is not None or self.config.devices.dra != "auto" or assignments is self._claims_seen_in:
            return ()
        if not any(needs_slices(found) for found in assignments):
            self._claims_seen_in = assignments
            return ()
        # not remembered until there is one: a token may be mounted later than the first scrape
        self._slices = build.slices_source(self.config, self.sources)
        waiting = self._slices.begin() if self._slices else None
        return () if waiting is None else (waiting,)

    def _page_sources(self) -> tuple[build.PageSource, ...]:
        if self._discovery is None:
            return self._pages
        return (*self._pages, *self._discovery.update(self._pods.pods if self._pods else {}))

    def _nothing_found(self, discovery: Discovery, pods: Health | None) -> Health:
        looked_for = f"no running pod of node {self.config.node.name} with an address has {discovery} (--dcgm.selector)"
        unknown = pods is not None and pods.up is False
        if pods and unknown:
            return _missing(f"{looked_for}: {pods.message}", pods.remedy)
        elsewhere = discovery.elsewhere(self._pods.pods) if self._pods else ()
        if not elsewhere:
            return _missing(looked_for, "is dcgm-exporter running on this node, and with these labels?")
        return _missing(
            f"{looked_for}; pods with these labels are in {', '.join(elsewhere)}",
            "where only those who may write GPU samples make pods, name it: "
            + " ".join(f"--dcgm.selector-namespace {name}" for name in elsewhere),
        )

    def _other_health(self) -> dict[str, Health]:
        """Of the sources that are not asked on every scrape."""
        sources = (self._inventory, self._pods, self._slices)
        health = {source.name: source.health for source in sources if source is not None}
        if self._needs_pods and self._pods is None:
            health[PODS] = _missing(
                f"neither {self.config.pods.kubelet_socket} (Kubernetes 1.37 and later) nor a token for the Kubernetes"
                " API is there: labels of pods are left out",
                "mount that socket's folder, or a service account's token",
            )
            self.telemetry.note_health(PODS, health[PODS])
        return health

    async def _join(
        self, pages: tuple[Page, ...], every_name: tuple[str, ...], inventory: Inventory
    ) -> JoinedPage | None:
        """Scrapes that shared a read share the join: its rejected lines count once, divided counters advance once.

        `every_name` are the sources that there are, of which `pages` may be some.
        """
        names = tuple(page.source for page in pages)
        join = self._joins.of(names, every_name, time.monotonic())
        self.current.keep(self._joins.kept)
        assignments = self._kubelet.assignments
        listing = Listing(asked_at_seconds=self._kubelet.asked_at_seconds, unlisted=self._kubelet.unlisted)

        def attribution_for(subjects: Mapping[Subject, int]) -> Attribution:
            return self.current.update(
                assignments,
                subjects,
                inventory=inventory,
                slices=self._slices.devices_for(assignments) if self._slices else NO_SLICES,
                bearers=self._pods.bearers if self._pods else NO_BEARERS,
                listing=listing,
                pages=pages,
                of=names,
            )

        if not pages:
            attribution_for(_NO_SUBJECTS)
            return None
        same_pages = _same(join.made_from[1:], pages)
        if join.joined and same_pages and attribution_for(join.joined.subjects) is join.made_from[0]:
            return join.joined
        bodies = [await in_slices(with_gpu_health(page.body)) if self._adds_gpu_health else page.body for page in pages]
        join.joined = await in_slices(join.joiner.work_for(bodies, attribution_for))
        join.made_from = (self.current.attribution, *pages)
        if not same_pages:
            self.telemetry.count_rejected(join.joined.rejected)
        return join.joined

    def _note(self, snapshot: Snapshot, *, everyone_answered: bool) -> None:
        # what the others' pages say is not known to a scrape that did not wait for them
        if everyone_answered and snapshot.owners is not self._noted:
            self._noted = snapshot.owners
            lost = sum(match.reason == Unmatched.OTHER_NODE for match in snapshot.owners.matches)
            self.telemetry.note_other_node(lost)
        if self.not_ready:
            down = (
                f"{name}: {snapshot.health[name].trouble}"
                for name in (KUBELET, *snapshot.page_sources)
                if not snapshot.health[name].up
            )
            ready = snapshot.joined is not None and snapshot.health[KUBELET].up
            self.not_ready = "" if ready else "not ready: " + "; ".join(down)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _left(patience_seconds: float | None, wait_seconds: float | None, began: float) -> float | None:
    """What remains of a wait of `patience_seconds` that began with the scrape, inside the scrape's own."""
    waits = [seconds for seconds in (patience_seconds, wait_seconds) if seconds is not None]
    return max(0.0, min(waits) - (time.monotonic() - began)) if waits else None


def _missing(message: str, remedy: str) -> Health:
    return Health(up=False, trouble=Trouble("missing", message, remedy))


def _health_of(
    read: asyncio.Task[Health] | asyncio.Task[Page], source: KubeletSource | build.PageSource, waited_seconds: float
) -> Health:
    """How this scrape fared with a source, by the very read it waited for: another may have come and gone since.

    Raises:
        Exception: what a read raised that is no failure of a source, but of this program.
    """
    last = source.health
    if not read.done():
        says = f"no answer within {waited_seconds:.1f} s; the read goes on in the background"
        late = Trouble("deadline", says, source.if_slow)
        return replace(last, up=False, trouble=late, duration_seconds=waited_seconds)
    error = read.exception()
    if isinstance(error, SourceError):
        return replace(last, up=False, trouble=error.trouble)
    result = read.result()
    if isinstance(result, Health):
        return result
    # most often the last look is this one
    return last if last.up else replace(last, up=True, trouble=None)
