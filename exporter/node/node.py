"""A look at a node: it asks every source at once, and joins their answers.

kubelet ──► assignments ──► owners ─┐
dcgm-exporter(s) ──► pages ─────────┴─► join ──► Snapshot ──► outputs, by way of web

build.py puts a node together.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from exporter import log
from exporter.accounts.entries import MOST_ACCOUNTS
from exporter.dividing.sharing import MOST_SERIES
from exporter.exposition.check import MOST_LINES
from exporter.exposition.series import MOST_DEVICES
from exporter.model.devices import Inventory, Owners
from exporter.model.memo import Memo
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.model.pods import PodInfo
from exporter.model.snapshot import KUBELET, Health, LookContext, Snapshot
from exporter.node.accounting import Accounting
from exporter.node.claims import ClaimLookUp
from exporter.node.handover import NodeHandover, WantedStreams
from exporter.node.kept_accounts import KeptAccounts
from exporter.node.measuring import Measuring
from exporter.node.pages import AttributionFor, CurrentContext, JoinedPages
from exporter.node.waiting import Answers, Streams, begin, health_of, hear, left, pods_to_show, taken, workloads_of
from exporter.outputs.node_outputs import OUTPUTS
from exporter.outputs.output import LOOK_AT_NODE, Look, Need, Output
from exporter.ownership.current import CurrentOwners, Tenures
from exporter.ownership.device_health import HealthWatch
from exporter.ownership.owners import Unmatched
from exporter.ownership.pods_of_names import Listing
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.verdicts import Verdicts
from exporter.sources.cdi.cdi_source import CdiInventory
from exporter.sources.claim_access import Claims
from exporter.sources.host.host_source import HostSource
from exporter.sources.kubelet.allocatable import KubeletAllocatable
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.long_work import in_slices
from exporter.sources.node_inventory import DriverSource, Inventories
from exporter.sources.node_pods import Pods
from exporter.sources.pages.discovery import MOST_FOUND, Discovery
from exporter.sources.pages.url import PageSource
from exporter.sources.resource_slices import Slices
from exporter.sources.source import Attempt, OptionalSource, Source, SourceCache, is_absent

if TYPE_CHECKING:
    from exporter.node.pushing import Pusher
    from exporter.probe.probing import Probing
    from exporter.sources.kernel_log.kernel_log_source import KernelLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """The sources of a node; None for a source that is not there. `needs_pods`: labels or the discovery need pods."""

    kubelet: KubeletSource
    allocatable: KubeletAllocatable
    pages: tuple[PageSource, ...]
    discovery: Discovery
    nvml: DriverSource
    measuring: Measuring | None
    probing: "Probing | None"
    inventory: Inventories
    host: HostSource
    pods: OptionalSource[Pods]
    needs_pods: bool
    slices: OptionalSource[Slices]
    claims: Claims
    workloads: Workloads
    pusher: "Pusher | None"
    kernel_log: "KernelLog | None"
    cache: SourceCache

    def __iter__(self) -> Iterator[Source]:
        yield from (*self.pages, *self.inventory.parts, self.kubelet, self.allocatable, self.discovery, self.nvml)
        yield from (self.host, self.pods, self.slices, self.claims, self.workloads)
        probe = self.probing.probe if self.probing else None
        optional: tuple[Source | None, ...] = (self.measuring, self.probing, probe, self.pusher, self.kernel_log)
        yield from (source for source in optional if source is not None)

    @property
    def specs(self) -> CdiInventory | None:
        """The source of CDI specs, if they are read."""
        return next((part for part in self.inventory.parts if isinstance(part, CdiInventory)), None)

    @property
    def of_machine(self) -> tuple[Source, ...]:
        """The sources of the machine itself."""
        joining = (joined.parts for joined in (self.measuring, self.probing) if joined is not None)
        return (*self.inventory.parts, self.nvml, *chain.from_iterable(joining))


_NOBODY = frozenset({"missing", "refused"})
REMEDY = (
    "to see what this program does, run: pod-gpu-metrics-exporter demo. On a GPU node,"
    " `pod-gpu-metrics-exporter doctor` says what is missing. Whatever starts later is found then"
)


def say_if_nothing_is_here(snapshot: Snapshot, sources: Sources) -> None:
    """Tell a user without a GPU what to do, if there is no kubelet's socket, no page, and no source of the machine.

    A GPU node has the driver's files or a kubelet from the start. On such a node each source's own log line is enough.
    """
    asked = {name: snapshot.health[name] for name in (KUBELET, *snapshot.page_sources)}
    of_machine = {source.name: source.health for source in sources.of_machine}
    if snapshot.health[KUBELET].reason != "missing" or not all(health.reason in _NOBODY for health in asked.values()):
        return
    # a user who names a source (--nvml.mode on) knows which sources there should be
    if not all(is_absent(health) for health in of_machine.values()):
        return
    looked_for = "; ".join(f"{name}: {health.message}" for name, health in {**asked, **of_machine}.items())
    log.info("this does not look like a GPU node", looked_for=looked_for, remedy=REMEDY)


READY_PROBE_PATIENCE_SECONDS = 0.9  # the kubelet gives a probe 1 s by default
# the needs that a look adds to its snapshot afterwards
_ADDED = frozenset(Need) - {Need.NODE, Need.READINESS}


class Node:
    """Reads the sources when asked, joins their answers, and keeps all that the next look can reuse."""

    outputs: Sequence[Output[Look]] = OUTPUTS
    looked = staticmethod(Look.of)

    def __init__(
        self,
        *,
        sources: Sources,
        owners: CurrentOwners,
        pages: JoinedPages,
        settings: LookContext,
        name: str,
        handover: NodeHandover,
        accounting: Accounting | None = None,
    ) -> None:
        """`settings` has the parts of a look's context that never change. `handover` goes to the next node."""
        self.handover = handover
        self.telemetry, self.instance = handover.telemetry, handover.instance
        self.sources = sources
        self._owners = owners
        self._pages = pages
        self._name = name
        self._claims = ClaimLookUp(
            kubelet=sources.kubelet,
            specs=sources.specs,
            access=sources.claims,
            slices=sources.slices,
            owners=owners,
            wanted=handover.the(WantedStreams),
        )
        self._context = CurrentContext(settings, sources.kubelet, sources.slices, owners)
        self._noted = Memo(None)
        self._accounting = accounting
        self._wanted = handover.the(WantedStreams)
        self._tenures = handover.the(Tenures)
        self._health_watch = handover.the(HealthWatch)
        if sources.pusher is not None:
            sources.pusher.look = self.look
        if sources.kernel_log is not None:
            sources.kernel_log.look = self.look
        self._looking = 0
        self._is_beating = False
        self._nobody_looks = asyncio.Event()
        self._show_bounds()

    async def close(self) -> None:
        """End the looks in flight, and keep the accounts."""
        await asyncio.gather(*(source.close() for source in self.sources.cache.sources.values()))
        if self._accounting is not None:
            await self._accounting.save()

    async def hear_watches(self, seconds: float) -> None:
        """Wait until each open stream has sent its first answer and each inventory was read, for `seconds` at most."""
        streams = self._begin_streams()
        for part in self.sources.inventory.parts:
            begin(part, streams)
        if streams:
            await asyncio.wait([first_word for _, first_word in streams], timeout=seconds)

    @property
    def is_finding_out(self) -> bool:
        """Whether the first measurement of owners' use of shared GPUs is under way."""
        return self.sources.measuring is not None and self.sources.measuring.begin() is not None

    async def give_way(self, successor: "Node") -> None:
        """Let the scrapes in flight end, then close the sources that the successor does not reuse."""
        while self._looking or self._is_beating:
            self._nobody_looks.clear()
            await self._nobody_looks.wait()
        await asyncio.gather(*(source.close() for source in self.sources.cache.not_in(successor.sources.cache)))

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> Snapshot:
        """Ask every source at once, wait `wait_seconds` at most (None: their own timeouts), join. `needs` adds more."""
        self._looking += 1
        try:
            began = time.monotonic()
            self._wanted.workloads |= Need.WORKLOADS in needs
            answers = await self._ask(wait_seconds, began)
            snapshot = await self._see(answers)
            if _ADDED.isdisjoint(needs):
                return snapshot
            to_show: Sequence[PodInfo] = ()
            if Need.WORKLOADS in needs:
                to_show = pods_to_show(snapshot, self.sources.pods.now.pods, self._owners.pods_of_owners.pods)
            if late := self._ask_further(to_show, needs):
                await hear(late, None, wait_seconds, began)
                # news of streams that came meanwhile is in every other answer, too
                snapshot = await self._see(answers)
            if Need.WORKLOADS in needs:
                snapshot = replace(snapshot, workloads=workloads_of(to_show, self.sources.workloads))
            if Need.VERDICTS in needs:
                kernel_log = self.sources.kernel_log
                errors = kernel_log.events.standing if kernel_log and kernel_log.health.up is not False else None
                work = self.handover.the(Verdicts).look(snapshot, errors, self.sources.nvml.reading, time.time())
                snapshot = replace(snapshot, verdicts=await in_slices(work))
            if self._accounting is not None and not needs.isdisjoint((Need.ACCOUNTS, Need.IDLE_SINCE)):
                snapshot = replace(snapshot, accounts=self._accounting.show(whole=Need.ACCOUNTS in needs))
            if Need.PROCESSES in needs and self.sources.measuring:
                # the measurement of the page's moment, as rows show it
                pods, kubelet = self.sources.pods.now.pods, self.sources.kubelet
                now = self.sources.measuring.measured_for(snapshot.owners, pods, kubelet)
                snapshot = replace(snapshot, measured=now)
            if Need.DIAGNOSIS in needs:
                snapshot = replace(snapshot, device_files=await self.sources.host.device_files())
            return snapshot
        finally:
            self._looking -= 1
            if not self._looking:
                self._pages.nobody_looks()
            self._nobody_looks.set()

    @property
    def pulse_seconds(self) -> float | None:
        """The pause between its own looks; None if it keeps no accounts and pushes nothing."""
        beating = self._accounting or self.sources.pusher
        return beating.interval_seconds if beating else None

    async def pulse(self) -> None:
        """Look, and note the look in the accounts. A pusher goes on by itself from here on."""
        if self.sources.pusher is not None:
            self.sources.pusher.begin()
        if self._accounting is None:
            return
        self._is_beating = True
        try:
            is_first = self._accounting.kept.looked_at_ns is None
            snapshot = await self._accounting.beat(self.look)
            if is_first:
                say_if_nothing_is_here(snapshot, self.sources)
        finally:
            self._is_beating = False
            self._nobody_looks.set()

    async def why_not_ready(self) -> str:
        """The reason why it is not ready; "" since the first page with the kubelet's answer."""
        if self.handover.not_ready:
            await self.look(READY_PROBE_PATIENCE_SECONDS)
        return self.handover.not_ready

    def _ask_further(self, pods: Sequence[PodInfo], needs: AbstractSet[Need]) -> Streams:
        """Ask for facts that only a look shows to be missing: the workloads of `pods`, and the ids on offer now.

        Returns the attempts to wait for. The look waits for the ids on offer as long as for the kubelet's other answer.
        """
        asked = self.sources
        attempts: list[tuple[Source, Attempt | None]] = []
        if pods:
            attempts.append((asked.workloads, asked.workloads.begin(pods)))
        doubted_at = self._health_watch.doubted_at
        if Need.VERDICTS in needs and doubted_at is not None:
            attempts.append((asked.kubelet, asked.allocatable.ask_after(doubted_at)))
        return [(source, attempt) for source, attempt in attempts if attempt]

    async def _ask(self, wait_seconds: float | None, began: float) -> Answers:
        """Ask every source at once, and wait for their answers."""
        kubelet, discovery, inventory = self.sources.kubelet, self.sources.discovery, self.sources.inventory
        call = kubelet.begin()
        streams = self._begin_streams()
        asked = self.sources.pages
        if discovery.selectors:
            # the discovery says which pods to ask
            await hear(streams, discovery.patience_seconds, wait_seconds, began)
            asked += discovery.update(self.sources.pods.now.pods)
        reads = [source.begin() for source in asked]
        begin(self.sources.nvml, streams)
        for source, read in zip(asked, reads, strict=True):
            if not read.done():
                await source.wait(left(source.patience_seconds, wait_seconds, began))
        if call is not None and not call.done():
            await kubelet.wait(left(kubelet.patience_seconds, wait_seconds, began))
        for part in inventory.parts:
            begin(part, streams)
        streams += await self._claims.look(inventory, wait_seconds, began)
        begin(self.sources.host, streams)
        if streams:
            # the first page should be complete, since a label that comes later makes another series
            await hear(streams, None, wait_seconds, began)
        in_force = inventory.inventory
        kubelet.follow(in_force.places)
        await self._claims.ask_of_access(wait_seconds, began)
        return Answers(call, asked, reads, in_force, time.monotonic() - began)

    async def _see(self, answers: Answers) -> Snapshot:
        """Join all that is known now, one look after another: a later look must not show an older page."""
        kubelet, discovery, call = self.sources.kubelet, self.sources.discovery, answers.call
        health = {kubelet.name: health_of(call, kubelet, answers.waited) if call else kubelet.health}
        pages, names = taken(answers.asked, answers.reads, answers.waited, health)
        everyone_answered = all(read.done() for read in answers.reads)
        async with self._pages.turn:
            of = tuple([page.source for page in pages])
            attribution = self._attribution(pages, of, answers.inventory)
            joined = await self._pages.join(pages, of, names, attribution)
        self._add_others(health)
        if not names:
            discovery.note_nothing(self.sources.pods.now.pods, self.sources.pods.health)
            health[discovery.name] = discovery.health
            names = (discovery.name,)
        snapshot = self._snapshot(pages, names, joined, health, answers.inventory)
        self._note(snapshot, everyone_answered=everyone_answered)
        return snapshot

    def _snapshot(
        self,
        pages: Sequence[Page],
        names: tuple[str, ...],
        joined: JoinedPage | None,
        health: Mapping[str, Health],
        inventory: Inventory,
    ) -> Snapshot:
        """The snapshot of the page sources `names` and of all other sources."""
        asked, owners, tenures = self.sources, self._owners.owners, self._tenures
        age_seconds, events = asked.kubelet.age_seconds, asked.kernel_log.events if asked.kernel_log else None
        if events is not None:
            subjects, asked_at = joined.subjects if joined else (), asked.kubelet.asked_at_seconds
            measured, now = self._owners.measured, time.monotonic()
            pods = self._owners.pods_of_owners.pods
            events.look(owners, inventory, subjects, pods=pods, measured=measured, asked_at=asked_at, now=now)
        return Snapshot(
            node=self._name,
            owners=owners,
            joined=joined,
            health=health,
            assignments_age_seconds=age_seconds,
            page_sources=names,
            context=self._context.now(),
            read_at_seconds=min([page.read_at_seconds for page in pages], default=None),
            values_read_at_seconds=tenures.look(None if age_seconds is None else owners, pages, time.time()),
            held_since=tenures.since,
            pod_labels=self._owners.pod_labels,
            inventory=inventory,
            attribute=self._owners.attribution,
            measured=self._owners.measured,
            unmeasured=asked.measuring.unmeasured if asked.measuring else None,
            host=asked.host.host,
            events=events.newest if events is not None else None,
            cuda=asked.probing.cuda_for(owners, asked.pods.now.pods, inventory) if asked.probing else None,
            healths=self._health_watch.look(
                owners, self._owners.pods_of_owners.pods, asked.allocatable.offered, time.monotonic()
            ),
        )

    def _begin_streams(self) -> Streams:
        """Keep the needed streams open. Returns the streams whose first answer is awaited."""
        streams: Streams = []
        asked = self.sources
        needs_pods = asked.needs_pods or self._wanted.workloads
        wanted = (needs_pods and asked.pods, asked.slices.is_there and asked.slices, asked.probing, asked.kernel_log)
        for source in wanted:
            if source:
                begin(source, streams)
        return streams

    def _attribution(self, pages: tuple[Page, ...], of: tuple[str, ...], inventory: Inventory) -> AttributionFor:
        """A function that brings the owners up to date for the subjects of these pages, by the assignments in force."""
        kubelet, slices, pods = self.sources.kubelet, self.sources.slices.now, self.sources.pods.now
        assignments = kubelet.assignments
        listing = Listing(asked_at_seconds=kubelet.asked_at_seconds, unlisted=kubelet.unlisted)
        allocatable, measuring = self.sources.allocatable.allocatable, self.sources.measuring
        claims = self.sources.claims.facts
        measured = partial(measuring.measured_for, pods=pods.pods, kubelet=kubelet) if measuring else None

        def attribute(subjects: Mapping[Subject, int]) -> Attribution:
            return self._owners.update(
                assignments,
                subjects,
                inventory=inventory,
                slices=slices.devices_for(assignments),
                pods_of_names=pods.pods_of_names,
                listing=listing,
                allocatable=allocatable,
                claims=claims,
                pages=pages,
                of=of,
                measured=measured,
            )

        return attribute

    def _add_others(self, health: dict[str, Health]) -> None:
        """Add the healths of the sources that a scrape does not ask."""
        asked = self.sources
        others = (asked.pods.now, asked.slices.now, asked.claims, asked.pusher, asked.kernel_log)
        for source in (*asked.of_machine, *others):
            # NVML's page may be in it already
            if source is not None and source.name not in health and not is_absent(source.health):
                health[source.name] = source.health
        state_file = self._accounting.kept.state_file if self._accounting else None
        if state_file is not None:
            health[state_file.name] = state_file.health

    def _show_bounds(self) -> None:
        bound = self.handover.telemetry.bound
        pages = len(self.sources.pages) + (MOST_FOUND if self.sources.discovery.selectors else 0)
        # the joins of all pages, of some and of none (pages.py)
        bound("series", MOST_LINES * (2 * pages - 1), lambda: self._pages.joins.series)
        bound("devices", MOST_DEVICES * pages, lambda: self._pages.joins.devices)
        bound("accounts", MOST_ACCOUNTS, lambda: self.handover.the(KeptAccounts).ledger.rows)
        bound("divided_counters", MOST_SERIES, lambda: self._owners.book.series)
        for source in self.sources:
            for of, (most, used) in source.bounds.items():
                bound(of, most, used)

    def _note(self, snapshot: Snapshot, *, everyone_answered: bool) -> None:
        # a scrape that did not wait does not know the other pages
        if everyone_answered:
            self._noted.of(self._note_other_node, snapshot.owners)
        if self.handover.not_ready:
            self.handover.note_readiness(snapshot)

    def _note_other_node(self, owners: Owners) -> None:
        lost = sum(match.reason == Unmatched.OTHER_NODE for match in owners.matches)
        self.handover.telemetry.note_other_node(lost)
