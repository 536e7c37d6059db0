"""The part of a look that every look has: it joins pages with the owners by the kubelet's assignments.

kubelet ──► assignments ──► owners ─┐
dcgm-exporter(s) ──► pages ─────────┴─► join ──► Snapshot

Tests: tests/node/test_node_evidence.py.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from exporter import log
from exporter.dividing.sharing import MOST_SERIES
from exporter.errors import SourceError, Trouble
from exporter.exposition.check import MOST_LINES
from exporter.exposition.series import MOST_DEVICES
from exporter.model.devices import Assignment, Inventory, Owners, SliceDevices
from exporter.model.memo import Memo
from exporter.model.pages import Page
from exporter.model.snapshot import Health, LookContext, Snapshot
from exporter.node.node_evidence import NodeEvidence
from exporter.node.pages import AttributionFor, JoinedPages
from exporter.node.part import Asking
from exporter.node.shared_sources import Sources
from exporter.ownership.current import CurrentOwners, Tenures
from exporter.ownership.owners import Unmatched
from exporter.ownership.pods_of_names import Listing
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.pages.discovery import MOST_FOUND
from exporter.sources.pages.url import PageSource
from exporter.sources.source import Bound, is_absent
from exporter.telemetry import Telemetry


@dataclass(kw_only=True, eq=False)
class Joining:
    """Reads pages and assignments, and joins them into a look.

    `node` is this node's name. `settings` has the constant parts of a look's context.
    """

    node: str
    sources: Sources
    owners: CurrentOwners
    evidence: NodeEvidence
    joined: JoinedPages
    settings: LookContext
    tenures: Tenures
    telemetry: Telemetry

    def __post_init__(self) -> None:
        self._noted = Memo(None)
        self._context = Memo(self.settings)

    @property
    def bounds(self) -> Mapping[str, Bound]:
        """What it remembers."""
        sources = self.sources
        pages = len(sources.pages) + (MOST_FOUND if sources.discovery.selectors else 0)
        joins = self.joined.joins
        return {
            # the joins of all pages, of some and of none (pages.py)
            "series": Bound(MOST_LINES * (2 * pages - 1), lambda: joins.series),
            "devices": Bound(MOST_DEVICES * pages, lambda: joins.devices),
            "divided_counters": Bound(MOST_SERIES, lambda: self.owners.book.series),
        }

    def ask(self, asking: Asking) -> None:
        """Ask the kubelet and the named sources of pages."""
        asking.call = self.sources.kubelet.begin()
        asking.pages = self.sources.pages
        asking.reads = [source.begin() for source in asking.pages]

    async def follow_up(self, asking: Asking) -> None:
        """Ask the dcgm-exporters that pods show, and wait for all pages and for the kubelet."""
        kubelet, discovery, pods = self.sources.kubelet, self.sources.discovery, self.sources.pods
        if discovery.selectors:
            await asking.hear_of(pods, discovery.patience_seconds)
            discovered = discovery.update(pods.now.pods)
            asking.pages += discovered
            asking.reads = [*asking.reads, *(source.begin() for source in discovered)]
        for source, read in zip(asking.pages, asking.reads, strict=True):
            if not read.done():
                await source.wait(asking.left(source.patience_seconds))
        if asking.call is not None and not asking.call.done():
            await kubelet.wait(asking.left(kubelet.patience_seconds))

    async def join(self, asking: Asking) -> Snapshot:
        """Join all that is known now, one look after another: a later look must not show an older page."""
        sources, kubelet, call = self.sources, self.sources.kubelet, asking.call
        inventory = sources.inventory.inventory
        health = {kubelet.name: health_of(call, kubelet, asking.waited) if call else kubelet.health}
        pages, names = taken(asking.pages, asking.reads, asking.waited, health)
        everyone_answered = all(map(asyncio.Task.done, asking.reads))
        async with self.joined.turn:
            of = tuple([page.source for page in pages])
            attribution = self._attribution(pages, of, inventory)
            joined = await self.joined.join(pages, of, names, attribution)
        if not names:
            discovery = sources.discovery
            discovery.note_nothing(sources.pods.now.pods, sources.pods.health)
            health[discovery.name] = discovery.health
            names = (discovery.name,)
        owners = self.owners.owners
        age_seconds = kubelet.age_seconds
        # a scrape that did not wait does not know the other pages
        if everyone_answered:
            self._noted.of(self._note, owners)
        return Snapshot(
            node=self.node,
            owners=owners,
            joined=joined,
            health=health,
            assignments_age_seconds=age_seconds,
            page_sources=names,
            context=self._context_now(),
            read_at_seconds=min([page.read_at_seconds for page in pages], default=None),
            values_read_at_seconds=self.tenures.look(None if age_seconds is None else owners, pages, time.time()),
            held_since=self.tenures.since,
            pod_labels=self.owners.pod_labels,
            inventory=inventory,
            attribute=self.owners.attribution,
            measured=self.owners.measured,
        )

    def _attribution(self, pages: tuple[Page, ...], of: tuple[str, ...], inventory: Inventory) -> AttributionFor:
        """A function that brings the owners up to date for the subjects of these pages, by the assignments in force."""
        sources, kubelet, pods = self.sources, self.sources.kubelet, self.sources.pods.now
        assignments, measuring = kubelet.assignments, sources.measuring
        return partial(
            self.owners.update,
            assignments,
            inventory=inventory,
            slices=sources.slices.now.devices_for(assignments),
            pods_of_names=pods.pods_of_names,
            listing=Listing(
                asked_at_seconds=kubelet.asked_at_seconds, listed=kubelet.listed, unlisted=kubelet.unlisted
            ),
            allocatable=sources.allocatable.allocatable,
            claims=sources.claims.facts,
            evidence=self.evidence.of(assignments, pods.pods, pods.pods_of_names),
            pages=pages,
            of=of,
            measured=partial(
                measuring.measured_for, pods=pods.pods, kubelet=kubelet, misses_pods=self._context.value.misses_pods
            )
            if measuring
            else None,
        )

    def _context_now(self) -> LookContext:
        """The context at this moment; the same object as long as nothing changes."""
        kubelet = self.sources.kubelet
        slices = self.sources.slices.now
        slices_up = None if is_absent(slices.health) else slices.health.up is not False
        problems = self.owners.label_problems
        misses_pods = self.settings.misses_pods and not self.sources.pods.now.pods_of_names
        return self._context.of(
            self._with_facts, kubelet.outside, kubelet.version, problems, slices.devices, slices_up, misses_pods
        )

    def _with_facts(
        self,
        outside: tuple[Assignment, ...],
        version: str,
        problems: Mapping[str, int],
        slice_devices: SliceDevices,
        slices_up: bool | None,
        misses_pods: bool,
    ) -> LookContext:
        """The settings with all that changes from look to look."""
        return replace(
            self.settings,
            outside=outside,
            kubelet_version=version,
            label_problems=problems,
            slice_devices=slice_devices,
            slices_up=slices_up,
            misses_pods=misses_pods,
        )

    def _note(self, owners: Owners) -> None:
        """Log what is wrong with the owners."""
        lost = sum(match.reason == Unmatched.OTHER_NODE for match in owners.matches)
        self.telemetry.note_other_node(lost)
        self.telemetry.note_contradictions({match.assignment.owner.name: why for match, why in owners.contradictions})


def taken(
    asked: tuple[PageSource, ...], reads: Sequence[asyncio.Task[Page]], waited: float, health: dict[str, Health]
) -> tuple[tuple[Page, ...], tuple[str, ...]]:
    """The pages that came, and the names of all asked sources. Also adds the sources' healths to `health`."""
    pages = []
    names = []
    for source, read in zip(asked, reads, strict=True):
        if read.cancelled():
            continue  # the source's pod has gone meanwhile
        names.append(source.name)
        state = health[source.name] = health_of(read, source, waited)
        if state.up:
            # another scrape may have had a newer page, and counters must not go back
            page = source.page or read.result()
            pages.append(page)
            log.debug("page", source=source.name, bytes=len(page.body), up=True)
        else:
            log.debug("page", source=source.name, up=False, reason=state.reason)
    return tuple(pages), tuple(names)


def health_of(
    read: asyncio.Task[Health] | asyncio.Task[Page], source: KubeletSource | PageSource, waited_seconds: float
) -> Health:
    """A source's health for this scrape, by the read that the scrape waited for: another read may have ended since.

    Raises Exception: a read failed by a fault of this program, not of the source.
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
    # the source's last attempt is mostly this read
    return last if last.up else replace(last, up=True, trouble=None)
