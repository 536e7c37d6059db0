"""A look at a node: every source is asked at once, and what they say is joined.

kubelet ──► assignments ──► owners ─┐
dcgm-exporter(s) ──► pages ─────────┴─► join ──► Snapshot ──► outputs, by way of web

What a node is made of is put together in build.py.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial

from exporter.accounting.entries import MOST_ACCOUNTS
from exporter.accounting.sharing import MOST_SERIES
from exporter.attribution.bearers import Listing
from exporter.attribution.current import CurrentOwners
from exporter.attribution.owners import Unmatched, needs_slices
from exporter.attribution.rows import Attribution
from exporter.exposition.check import MOST_LINES
from exporter.exposition.series import MOST_DEVICES
from exporter.model.devices import Assignment, Inventory, Owners
from exporter.model.pages import JoinedPage, Page, Subject
from exporter.model.snapshot import Facts, Health, Snapshot
from exporter.node.accounting import Accounting
from exporter.node.facts import FactsOfNow
from exporter.node.lasting import Lasting
from exporter.node.nothing_here import say_if_nothing_is_here
from exporter.node.pages import AttributionFor, JoinedPages
from exporter.node.sources import Sources
from exporter.node.waiting import Streams, begin, health_of, hear, left, taken
from exporter.node.workloads import workloads_of
from exporter.outputs.node import OUTPUTS
from exporter.outputs.output import LOOK_AT_NODE, Look, Need, Output
from exporter.sources.source import Source, is_absent

READY_PROBE_PATIENCE_SECONDS = 0.9  # the kubelet gives a probe 1 s by default
# what is put into a snapshot that is made without it
_ADDED = frozenset({Need.WORKLOADS, Need.ACCOUNTS, Need.PROCESSES, Need.DIAGNOSIS})


class Node:
    """Reads the sources when asked, joins what they say, and keeps what can be reused until the next time."""

    outputs: Sequence[Output[Look]] = OUTPUTS
    looked = staticmethod(Look.of)

    def __init__(
        self,
        *,
        sources: Sources,
        owners: CurrentOwners,
        pages: JoinedPages,
        settings: Facts,
        name: str,
        lasting: Lasting,
        accounting: Accounting | None = None,
    ) -> None:
        """`settings` are the facts that never move; `name` is the node's. `lasting` goes to the node that follows.

        Without `accounting` no accounts are kept.
        """
        self.lasting = lasting
        self.telemetry, self.instance = lasting.telemetry, lasting.instance
        self.sources = sources
        self._owners = owners
        self._pages = pages
        self._name = name
        self._claims_seen_in: frozenset[Assignment] = frozenset()
        self._facts = FactsOfNow(settings, sources.kubelet, sources.slices, owners)
        self._noted: Owners | None = None
        self._accounting = accounting
        self._looking = 0
        self._is_beating = False
        self._nobody_looks = asyncio.Event()
        self._show_bounds()

    async def close(self) -> None:
        """End what is in flight, and keep the accounts."""
        await asyncio.gather(*(source.close() for source in self.sources.made.all()))
        if self._accounting is not None:
            await self._accounting.save()

    async def hear_watches(self, seconds: float) -> None:
        """Wait for the first word of every stream that is kept open, be it a failure, and no longer than `seconds`."""
        waiting = [first_word for _, first_word in self._begin_streams()]
        if waiting:
            await asyncio.wait(waiting, timeout=seconds)

    @property
    def is_finding_out(self) -> bool:
        """Whether it is about to be known what owners of shared GPUs use."""
        return self.sources.measuring is not None and self.sources.measuring.begin() is not None

    async def give_way(self, successor: "Node") -> None:
        """Let the scrapes in flight end, then close what the successor does not go on with."""
        while self._looking or self._is_beating:
            self._nobody_looks.clear()
            await self._nobody_looks.wait()
        await asyncio.gather(*(source.close() for source in self.sources.made.not_in(successor.sources.made)))

    async def look(self, wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> Snapshot:
        """Ask every source at once, wait no longer than `wait_seconds` (None: their own timeouts), join.

        Where workloads are needed, say what the pods belong to as well; where accounts are, how they stand; for a
        diagnosis, which of the driver's device files this process may open.
        """
        self._looking += 1
        try:
            if _ADDED.isdisjoint(needs):
                return await self._look(wait_seconds)
            began = time.monotonic()
            self.lasting.wants_workloads |= Need.WORKLOADS in needs
            snapshot = await self._look(wait_seconds)
            if Need.WORKLOADS in needs:
                pods, of_owners = self.sources.pods.now.pods, self._owners.pods_of_owners.pods
                found = workloads_of(snapshot, self.sources.workloads, pods, of_owners, wait_seconds, began)
                snapshot = replace(snapshot, workloads=await found)
            if Need.ACCOUNTS in needs and self._accounting is not None:
                snapshot = replace(snapshot, accounts=self._accounting.show())
            if Need.PROCESSES in needs and self.sources.measuring:
                # what rows show of them is that of the page's moment
                now = self.sources.measuring.measured_for(snapshot.owners, self.sources.pods.now.pods)
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
        """How often it is to look by itself; None where no accounts are kept."""
        return self._accounting.interval_seconds if self._accounting else None

    async def pulse(self) -> None:
        """Look, and note in the accounts what was seen."""
        if self._accounting is None:
            return
        self._is_beating = True
        try:
            is_first = self.lasting.looked_at_ns is None
            snapshot = await self._accounting.beat(self.look)
            if is_first:
                say_if_nothing_is_here(snapshot, self.sources)
        finally:
            self._is_beating = False
            self._nobody_looks.set()

    async def why_not_ready(self) -> str:
        """The reason, or "" once a page could be made with the kubelet's word, and from then on."""
        if self.lasting.not_ready:
            await self.look(READY_PROBE_PATIENCE_SECONDS)
        return self.lasting.not_ready

    async def _look(self, wait_seconds: float | None) -> Snapshot:
        began = time.monotonic()
        kubelet, discovery, inventory = self.sources.kubelet, self.sources.discovery, self.sources.inventory
        call = kubelet.begin()
        streams = self._begin_streams()
        asked = self.sources.pages
        if discovery.is_there:
            # who is to be asked is not known before
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
        streams += self._begin_slices()
        begin(self.sources.host, streams)
        if streams:
            # The first page had better say all: what comes later is another series.
            await hear(streams, None, wait_seconds, began)
        waited = time.monotonic() - began
        health = {kubelet.name: health_of(call, kubelet, waited) if call else kubelet.health}
        pages, names = taken(asked, reads, waited, health)
        everyone_answered = all(read.done() for read in reads)
        in_force = inventory.inventory
        async with self._pages.turn:
            of = tuple([page.source for page in pages])
            joined = await self._pages.join(pages, of, names, self._attribution(pages, of, in_force))
        self._add_others(health)
        if not names:
            discovery.note_nothing(self.sources.pods.now.pods, self.sources.pods.health)
            health[discovery.name] = discovery.health
            names = (discovery.name,)
        snapshot = self._snapshot(pages, names, joined, health, in_force)
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
        """What the sources of these `names` and all others have said."""
        asked, owners, tenures = self.sources, self._owners.owners, self.lasting.tenures
        age_seconds = asked.kubelet.age_seconds
        return Snapshot(
            node=self._name,
            owners=owners,
            joined=joined,
            health=health,
            assignments_age_seconds=age_seconds,
            page_sources=names,
            facts=self._facts.now(),
            read_at_seconds=min([page.read_at_seconds for page in pages], default=None),
            values_read_at_seconds=tenures.look(None if age_seconds is None else owners, pages, time.time()),
            held_since=tenures.since,
            pod_labels=self._owners.pod_labels,
            inventory=inventory,
            attribute=self._owners.attribution,
            measured=self._owners.measured,
            unmeasured=asked.measuring.unmeasured if asked.measuring else None,
            host=asked.host.host,
            cuda=asked.probing.cuda_for(owners, asked.pods.now.pods, inventory) if asked.probing else None,
        )

    def _begin_streams(self) -> Streams:
        """Keep those open that somebody needs; each whose first word is still awaited, with that."""
        streams: Streams = []
        pods, slices = self.sources.pods, self.sources.slices
        if self.sources.needs_pods or self.lasting.wants_workloads:
            begin(pods, streams)
        if slices.is_there:
            begin(slices, streams)
        if self.sources.probing is not None:
            begin(self.sources.probing, streams)
        return streams

    def _begin_slices(self) -> Streams:
        """Read ResourceSlices from the first claim on that needs them; what is then waited for."""
        streams: Streams = []
        slices, assignments = self.sources.slices, self.sources.kubelet.assignments
        if slices.is_there or assignments is self._claims_seen_in:
            return streams
        if not any(needs_slices(assignment) for assignment in assignments):
            self._claims_seen_in = assignments
            return streams
        # looked for with every look until it is there: a token may be mounted later than the first one
        begin(slices, streams)
        self.lasting.reads_slices = slices.is_there
        return streams

    def _attribution(self, pages: tuple[Page, ...], of: tuple[str, ...], inventory: Inventory) -> AttributionFor:
        """Brings the owners up to date for the subjects of these pages, by the assignments that are in force now."""
        kubelet, slices, pods = self.sources.kubelet, self.sources.slices.now, self.sources.pods.now
        assignments = kubelet.assignments
        listing = Listing(asked_at_seconds=kubelet.asked_at_seconds, unlisted=kubelet.unlisted)
        offers, measuring = self.sources.offers.offers, self.sources.measuring
        measured = partial(measuring.measured_for, pods=pods.pods) if measuring else None

        def attribute(subjects: Mapping[Subject, int]) -> Attribution:
            return self._owners.update(
                assignments,
                subjects,
                inventory=inventory,
                slices=slices.devices_for(assignments),
                bearers=pods.bearers,
                listing=listing,
                offers=offers,
                pages=pages,
                of=of,
                measured=measured,
            )

        return attribute

    def _add_others(self, health: dict[str, Health]) -> None:
        """The healths of the sources that are not asked on every scrape."""
        asked = self.sources
        others: tuple[Source, ...] = (*asked.of_machine, asked.pods.now, asked.slices.now)
        # NVML may be among the pages already
        health |= {each.name: each.health for each in others if each.name not in health and not is_absent(each.health)}
        if self._accounting is not None and self.lasting.state_file is not None:
            health[self.lasting.state_file.name] = self.lasting.state_file.health

    def _show_bounds(self) -> None:
        bound = self.lasting.telemetry.bound
        pages = len(self.sources.pages) + self.sources.discovery.most
        # of the pages of all, and of some for whoever got no more (joins.py)
        bound("series", MOST_LINES * (2 * pages - 1), lambda: self._pages.series)
        bound("devices", MOST_DEVICES * pages, lambda: self._pages.devices)
        bound("accounts", MOST_ACCOUNTS, lambda: self.lasting.ledger.rows)
        bound("divided_counters", MOST_SERIES, lambda: self._owners.book.series)
        for source in self.sources:
            for of, (most, used) in source.bounds.items():
                bound(of, most, used)

    def _note(self, snapshot: Snapshot, *, everyone_answered: bool) -> None:
        # what the others' pages say is not known to a scrape that did not wait for them
        if everyone_answered and snapshot.owners is not self._noted:
            self._noted = snapshot.owners
            lost = sum(match.reason == Unmatched.OTHER_NODE for match in snapshot.owners.matches)
            self.lasting.telemetry.note_other_node(lost)
        if self.lasting.not_ready:
            self.lasting.note_readiness(snapshot)
