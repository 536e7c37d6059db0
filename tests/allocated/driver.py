"""The real sources, owners and accounts of a node over a `Life`, below their sockets, in simulated time.

An hour of a node takes seconds. Every scrape is held against all that was true while it ran.
"""

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from unittest.mock import patch

from exporter.accounts.ledger import Ledger, Rules
from exporter.config.named_files import read_node_files
from exporter.exposition.join import Joiner
from exporter.model.device_ref import DeviceRef
from exporter.model.devices import Assignment, Inventory, InventoryGpu
from exporter.model.pods import Owner
from exporter.model.snapshot import KUBELET, Health, Snapshot
from exporter.node.policies import device_rules, label_policy
from exporter.ownership.allocators.allocator_table import ANNOTATIONS
from exporter.ownership.by_allocators import ByAllocators
from exporter.ownership.counted_ids import grouped
from exporter.ownership.current import CurrentOwners
from exporter.ownership.labels import PodLabelPolicy
from exporter.ownership.owners import read_assignment
from exporter.ownership.pods_of_names import Listing
from exporter.ownership.sample_rows import Attribution
from exporter.ownership.unlisted import UnlistedHolders
from exporter.ownership.words import Words
from exporter.simulator import pods_api
from exporter.simulator.allocators import SimulatedAllocator, Unkindness
from exporter.simulator.parts import H100, Part
from exporter.sources.kubelet import assignments
from exporter.sources.kubelet.assignments import KeptAssignments, KubeletSource
from exporter.sources.kubelet.kubelet_pods import PodsApi
from exporter.sources.kubernetes.node_objects import ApiPods
from exporter.sources.node_pods import CATCH_UP_SECONDS
from tests.allocated.feeds import ANSWER_SECONDS, LAG_SECONDS, ApiFeed, Kubelet, PodsApiFeed, by_this_clock
from tests.allocated.life import Life, Spell, reusing
from tests.support.exporter import config_of
from tests.support.ledgers import note
from tests.support.simulated import SimulatedDcgm

SECOND = 1_000_000_000
# a look of the accounts
_LOOK_SECONDS = 10.0
# scrapes are so far apart while something happens, and else
_DENSE_SECONDS = 1.0
_SPARSE_SECONDS = 10.0
_HAPPENS_SECONDS = 8.0
# the mean time between two things that happen
_BETWEEN_SECONDS = 30.0
_LATEST_SECONDS = 1.0
# what keeps an owner unknown by design, each for how long it lasts
CUT_OFF = "cut off"
DELETED_BY_FORCE = "deleted by force while the kubelet is down"
CAME_BEFORE_KUBELET_WENT = "came before the kubelet went, and not listed yet"
CUT_OFF_BEFORE_KUBELET_WENT = "cut off before the kubelet went"
_BY_DESIGN = (CUT_OFF, DELETED_BY_FORCE, CAME_BEFORE_KUBELET_WENT, CUT_OFF_BEFORE_KUBELET_WENT)
UP = Health(up=True)
Pair = tuple[Owner, str]


@dataclass
class Verdict:
    """What the scrapes of a run were like.

    `wrong` are texts about wrong owners. `late` are texts about owners that were not shown in time, and `latest` the
    longest times without an owner in seconds, by the reason. `ratios` are texts about wrong parts of GPUs.
    """

    scrapes: int = 0
    pods: int = 0
    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    latest: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    ratios: list[str] = field(default_factory=list)
    accounted: Mapping[str, float] = field(default_factory=dict)
    true: Mapping[str, float] = field(default_factory=dict)
    unknown: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    happened: Counter[str] = field(default_factory=Counter)


class Driver:
    """A node whose pods are known by the kubelet's Pods API ("kubelet") or the Kubernetes API ("api")."""

    def __init__(
        self, kind: type[SimulatedAllocator], by: str, seed: int, folder: Path, *, late_seconds: float = 5.0
    ) -> None:
        self.chance = random.Random(f"{kind.__name__} {by} {seed}")
        unkindness = Unkindness(late_seconds=late_seconds, broken=100, foreign=100)
        loop = asyncio.get_running_loop()
        allocator = reusing(kind, unkindness=unkindness, seed=seed)
        self.life = Life(gpus=8, seed=seed, clock=lambda: round(loop.time() * SECOND), allocator=allocator)
        self.kubelet = Kubelet(self.life, folder / "kubelet.sock", self.chance)
        self.feed: PodsApiFeed | ApiFeed
        self.verdict = Verdict()
        config = config_of(
            kubelet_socket=str(folder / "kubelet.sock"),
            kubelet_max_age="0s",
            **{name.replace("-", "_").replace(".", "_"): value for name, value in kind.settings.items()},
        )
        rules = device_rules(config.devices, config.labels, read_node_files(config).rules)
        policy = label_policy(config.labels, config.sharing, rules, has_claims=False, divides_counters=False)
        words = Words(rules.rules, rules.every_allocator)
        self.owners = CurrentOwners(
            policy,
            PodLabelPolicy(with_uid=True),
            rules.rules,
            by_allocators=ByAllocators(words, UnlistedHolders(rules.rules, rules.every_allocator)),
        )
        kept = KeptAssignments(read=self._refers_to)
        with patch.object(assignments, "PodResourcesClient", lambda *_: self.kubelet):
            self.list = KubeletSource(
                settings=config.kubelet,
                resources=config.devices.resources,
                on_health=lambda *_: None,
                kept=kept,
                clock=loop.time,
                wall_clock=self.kubelet.wall_clock,
            )
        self.pods = self._source_of_pods(by)
        gpus = self.life.gpus
        self.inventory = Inventory(
            gpus=tuple(InventoryGpu(uuid=gpu.uuid, index=f"{gpu.index}", device=f"nvidia{gpu.index}") for gpu in gpus)
        )
        page = SimulatedDcgm(self.life).page().encode()
        joiner = Joiner(read_subject=policy.read_subject, is_owner_label=policy.is_owner_label, wanted=lambda _: True)
        offers: defaultdict[str, set[str]] = defaultdict(set)
        for resource, device_id in (offer for gpu in gpus for offer in gpu.offers):
            offers[resource].add(device_id)
        self.offers = {resource: grouped(resource, frozenset(ids)) for resource, ids in offers.items()}
        self.joined = joiner.join([page], Attribution(self.owners.owners, policy))
        self.ledger = Ledger()
        self._accounted: dict[object, tuple[str, int]] = {}
        self._looked_at = -inf
        self._judged_at = 0.0
        self._listed_at = 0.0  # the last scrape at which the kubelet listed pods
        self._happened_at = 0.0
        self._kubelet_down_at = inf
        self._kubelet_up_at = 0.0
        self._is_over = False

    def _source_of_pods(self, by: str) -> PodsApi | ApiPods:
        clock = asyncio.get_running_loop().time
        if by == "kubelet":
            of_kubelet = self.feed = PodsApiFeed(self.life, self.chance, self.kubelet)
            pods = PodsApi(socket="/nowhere", on_health=lambda *_: None, annotations=ANNOTATIONS, clock=clock)
            pods._channel = of_kubelet  # type: ignore[assignment]
            return pods
        of_api = self.feed = ApiFeed(self.life, self.chance)
        return ApiPods(
            api=of_api,  # type: ignore[arg-type]
            node_name="gpu-node-1",
            on_health=lambda *_: None,
            annotations=ANNOTATIONS,
            clock=clock,
        )

    def _refers_to(self, assignment: Assignment) -> DeviceRef | None:
        return read_assignment(assignment, self.owners.knowledge)

    # What happens.

    async def run(self, pods: int) -> Verdict:
        """Let so many pods come, and scrape all the while."""
        scrapes = asyncio.create_task(self._scrapes())
        try:
            while self.life.pods_made < pods and not scrapes.done():
                await asyncio.sleep(self.chance.expovariate(1 / _BETWEEN_SECONDS))
                self._happened_at = self.life.now
                await self._happen()
            await asyncio.sleep(_HAPPENS_SECONDS)
            self._is_over = True
            await scrapes
        finally:
            scrapes.cancel()
            await self.list.close()
            await self.pods.close()
        self.verdict.pods = self.life.pods_made
        self._settle()
        return self.verdict

    async def _happen(self) -> None:
        """One thing happens."""
        events = {
            self._come_or_go: 30,
            self._exchange: 12,
            self._remake: 14,
            self._sweep: 5,
            self._restart_kubelet: 3,
            self._outage: 3,
            self._stream_breaks: 2,
        }
        (event,) = self.chance.choices(list(events), list(events.values()))
        self.verdict.happened[event.__name__] += 1
        await event()

    async def _come_or_go(self) -> None:
        if self.chance.random() < 0.45:
            self.life.go()
        else:
            self.life.come()

    async def _exchange(self) -> None:
        self.life.exchange()

    async def _sweep(self) -> None:
        self.life.sweep()

    async def _remake(self) -> None:
        """A pod of a StatefulSet goes; its controller and the scheduler take some time to make it anew."""
        if old := self.life.take_stateful():
            await asyncio.sleep(self.chance.uniform(0.2, 2.0))
            self.life.successor(old)

    async def _restart_kubelet(self) -> None:
        self._kubelet_down_at = self.life.now
        self.kubelet.stop()
        down = self.chance.choice((0.3, 2.0, 15.0, 45.0))
        await asyncio.sleep(down / 2)
        if isinstance(self.feed, ApiFeed) and self.chance.random() < 0.7:
            self.life.delete_by_force()
        await asyncio.sleep(down / 2)
        await self.kubelet.start(empty_seconds=self.chance.uniform(0.4, 2.0))
        self._kubelet_up_at = self.life.now
        self._kubelet_down_at = inf

    async def _outage(self) -> None:
        """The exporter cannot hear of pods, and the world goes on."""
        self.feed.cut()
        ends_at = self.life.now + self.chance.choice((1.0, 5.0, 20.0))
        while self.life.now < ends_at:
            await asyncio.sleep(min(self.chance.expovariate(1 / 5.0), ends_at - self.life.now))
            self._happened_at = self.life.now
            await self.chance.choice((self._come_or_go, self._exchange, self._remake, self._sweep))()
        if isinstance(self.feed, ApiFeed):
            self.feed.forgets = self.chance.random() < 0.5
        self.feed.mend()

    async def _stream_breaks(self) -> None:
        """The stream of pods alone ends, while pods come and go."""
        self.feed.cut()
        self.feed.mend()
        await self.chance.choice((self._exchange, self._remake))()

    # What is seen.

    async def _scrapes(self) -> None:
        while not self._is_over:
            await self._scrape()
            is_dense = (
                self.life.now - self._happened_at < _HAPPENS_SECONDS
                or self.feed.synced_at == inf
                or self._kubelet_down_at < inf
            )
            most = _DENSE_SECONDS if is_dense else _SPARSE_SECONDS
            await asyncio.sleep(self.chance.uniform(0.2, 1.0) * most)

    async def _scrape(self) -> None:
        begin = self.life.now
        attempts = [attempt for source in (self.pods, self.list) if (attempt := source.begin()) is not None]
        if attempts:
            await asyncio.wait(attempts)
        end = self.life.now
        if self.kubelet.is_up and self.kubelet.knows_pods:
            self._listed_at = begin
        self.owners.update(
            self.list.assignments,
            self.joined.subjects,
            inventory=self.inventory,
            pods_of_names=self.pods.pods_of_names,
            allocatable=self.offers,
            listing=Listing(
                asked_at_seconds=self.list.asked_at_seconds, listed=self.list.listed, unlisted=self.list.unlisted
            ),
        )
        self.verdict.scrapes += 1
        holders = self.owners.owners.holders
        shown = {(holder.owner, key.uuid) for key, of_key in holders.items() for holder in of_key}
        self._judge(shown, begin, end)
        if self.life.now - self._looked_at >= _LOOK_SECONDS - _DENSE_SECONDS:
            self._account(shown, begin)

    def _judge(self, shown: set[Pair], begin: float, end: float) -> None:
        truths = list(self.life.true_between(begin, end))
        allowed = {(owner, part.uuid) for truth in truths for owner, parts in truth.parts.items() for part in parts}
        for owner, uuid in sorted(shown - allowed):
            self.verdict.wrong.append(f"{begin:.2f}..{end:.2f}: {owner.name} on {uuid}: {self._why(owner)}")
        for name in {owner.pod_key for owner, _ in shown}:
            uid = dict(self.owners.pod_labels.get(name, ())).get("pod_uid", "")
            if uid and uid not in {truth.uids.get(name) for truth in truths}:
                self.verdict.wrong.append(f"{begin:.2f}..{end:.2f}: {name} has uid {uid}")
        since, self._judged_at = self._judged_at, begin
        for (uid, _), spell in self.life.lasting.items():
            if spell.until < since or spell.fault:
                continue
            missing = [part for part in spell.parts if (spell.owner, part.uuid) not in shown]
            if missing and spell.since <= begin and spell.until >= end:
                self._miss(spell, uid, begin)
            seconds = max(0.0, min(begin, spell.until) - max(since, spell.since))
            self.verdict.unknown[spell.owner.namespace] += seconds * sum(map(self._part, missing))

    def _miss(self, spell: Spell, uid: str, now: float) -> None:
        """A container's owner is unknown, although it is true for the whole scrape."""
        reason, due = self._due(spell, uid, now)
        seconds = now - due
        self.verdict.latest[reason] = max(self.verdict.latest[reason], seconds)
        if reason not in _BY_DESIGN and seconds > _LATEST_SECONDS:
            self.verdict.late.append(f"{now:.2f}: {reason} {seconds:.2f} s: {spell} {self._why(spell.owner)}")

    def _due(self, spell: Spell, uid: str, now: float) -> tuple[str, float]:
        """Since when an owner is unknown, and what kept the exporter from knowing it."""
        due = max(spell.since, spell.written_at)
        feed = self.feed
        if uid in self.life.hidden:
            return DELETED_BY_FORCE, due
        if self._kubelet_down_at <= now and spell.since >= self._listed_at - ANSWER_SECONDS:
            return CAME_BEFORE_KUBELET_WENT, due
        if self._kubelet_down_at <= now and spell.comes_again and feed.synced_at >= self._listed_at - CATCH_UP_SECONDS:
            return CUT_OFF_BEFORE_KUBELET_WENT, due
        if feed.synced_at > now:
            is_unheard = due >= feed.down_at - LAG_SECONDS
            return (CUT_OFF if spell.comes_again or is_unheard else "cut off, known before"), max(due, feed.down_at)
        if due < feed.synced_at:
            return "heard again", max(feed.synced_at, self._kubelet_up_at)
        return "late", max(due, self._kubelet_up_at)

    def _why(self, owner: Owner) -> str:
        """What the exporter knew of a container, for a test that fails."""
        matches = [match for match in self.owners.owners.matches if match.assignment.owner == owner]
        of_name = [
            (named.pod.uid[:4], round(named.since, 2), round(named.until, 2), named.is_first, named.pod.phase)
            for named in self.pods.pods_of_names.get(owner.pod_key, ())
        ]
        spells = [
            (uid[:4], round(s.since, 2), round(s.written_at, 2), round(s.until, 2), s.fault)
            for (uid, _), s in self.life.spells.items()
            if s.owner == owner
        ]
        words = [(match.reason, match.assignment.word) for match in matches]
        return f"pods {of_name} asked {self.list.asked_at_seconds} spells {spells} words {words}"

    # What is counted.

    def _account(self, shown: set[Pair], begin: float) -> None:
        now = self.life.now
        self._looked_at = now
        snapshot = Snapshot(
            node="n",
            owners=self.owners.owners,
            joined=self.joined,
            health={KUBELET: UP, "a": UP},
            assignments_age_seconds=0.0,
            page_sources=("a",),
            inventory=self.inventory,
            pod_labels=self.owners.pod_labels,
        )
        note(self.ledger, snapshot, round(now * SECOND), Rules(keep_ns=90 * SECOND))
        self.ledger.note_shown()
        ratios: defaultdict[str, float] = defaultdict(float)
        for account in self.ledger.accounts.rows:
            if account.owner is None:
                continue
            key = (account.owner, account.device, account.labels)
            self._accounted[key] = (account.owner.namespace, account.amounts.get("allocated_ns", 0))
            if account.allocated_ratio:
                ratios[account.device.uuid] += account.allocated_ratio
        if self.life.history[-1].since < begin:
            self._judge_ratios(ratios, shown)

    def _judge_ratios(self, ratios: Mapping[str, float], shown: set[Pair]) -> None:
        """Compare each GPU's parts with the bookkeeping of the world, if every holder is known."""
        true: defaultdict[str, float] = defaultdict(float)
        truth = self.life.history[-1]
        unknown = set[str]()
        for owner, parts in truth.parts.items():
            for part in parts:
                true[part.uuid] += self._part(part)
                if (owner, part.uuid) not in shown:
                    unknown.add(part.uuid)
        for gpu in self.life.gpus:
            uuid = gpu.uuid
            if uuid not in unknown and abs(ratios.get(uuid, 0.0) - true[uuid]) > 1e-3:
                held = {owner.name: of for owner, of in truth.parts.items() if uuid in {part.uuid for part in of}}
                self.verdict.ratios.append(f"{self.life.now:.1f} {uuid}: {ratios.get(uuid)}, not {true[uuid]}: {held}")

    def _part(self, part: Part) -> float:
        """The part of a GPU, by the rule of granted_parts.py."""
        if part.fraction is not None:
            return part.fraction
        if (part.cores_percent or 0) >= 100:
            return 1.0
        if part.memory_mib is None:
            return 1.0
        return part.memory_mib / H100.memory

    def _settle(self) -> None:
        """Sum up what each namespace had of GPUs, in seconds; pods without a readable word have none."""
        accounted: defaultdict[str, float] = defaultdict(float)
        for namespace, ns in self._accounted.values():
            accounted[namespace] += ns / SECOND
        true: defaultdict[str, float] = defaultdict(float)
        for spell in self.life.spells.values():
            if not spell.fault:
                seconds = min(spell.until, self._looked_at) - max(0.0, spell.since)
                true[spell.owner.namespace] += max(0.0, seconds) * sum(map(self._part, spell.parts))
        self.verdict.accounted, self.verdict.true = dict(accounted), dict(true)


@contextmanager
def by_the_loop() -> Iterator[None]:
    """Let the simulated Pods API tell the time by the event loop."""
    with patch.object(pods_api, "time", by_this_clock(pods_api)):
        yield
