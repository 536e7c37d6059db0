"""The same worlds for some seconds over real sockets: the whole node role, words up to a second late.

The kubelet restarts, the API server goes and comes, and every scrape is held against all that was true while it ran.
"""

import asyncio
import json
import random
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from exporter.node.joining import Joining
from exporter.simulator.allocators import Gpushare, Hami, Kai, SimulatedAllocator, Unkindness
from exporter.simulator.parts import Pod
from tests.allocated.life import SECOND, Life, reusing
from tests.node.test_accounting import node_of
from tests.support.exporter import Exporter, config_of, running
from tests.support.node_parts import part_of
from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

# how often each happens, beside a restart of the kubelet and an outage
CHANGES = {"come": 7, "go": 3, "exchange": 3, "sweep": 2, "take_stateful": 4}
EVENTS = sum(CHANGES.values()) + 2
PAUSE_SECONDS = (0.05, 0.2)
_EMPTY_SECONDS = 0.5
Pairs = set[tuple[str, str, str, str]]


class Run:
    """An exporter, and the node whose pods come and go."""

    def __init__(self, life: Life, node: SimulatedNode, exporter: Exporter, by: str) -> None:
        self.life, self.node, self.exporter, self.by = life, node, exporter, by
        self.chance = random.Random(1)
        self.changes = [name for name, times in CHANGES.items() for _ in range(times)]
        self.chance.shuffle(self.changes)
        self.sources = part_of(node_of(exporter.service), Joining).sources
        self.wrong: list[str] = []
        self.scrapes = self.successors = 0

    async def scrape(self) -> Pairs:
        """The owners that a scrape shows, which must have been true at some moment of it."""
        begin = self.life.now
        _, text = await self.exporter.get("/container/metrics")
        truths = list(self.life.true_between(begin, self.life.now))
        shown = {
            (row["namespace"], row["pod"], row["container"], row["device_uuid"])
            for row in json.loads(text)
            if row.get("pod")
        }
        allowed: Pairs = {
            (owner.namespace, owner.pod, owner.container, part.uuid)
            for truth in truths
            for owner, parts in truth.parts.items()
            for part in parts
        }
        self.wrong += [f"{begin:.2f}: {pair} {self.why(pair)}" for pair in sorted(shown - allowed)]
        self.scrapes += 1
        return shown

    def why(self, pair: tuple[str, str, str, str]) -> str:
        """What the exporter knew of the pod, and what was true of it, for a test that fails."""
        sources = self.sources
        of_name = sources.pods.now.pods_of_names.get(pair[:2], ())
        spells = [spell for spell in self.life.spells.values() if spell.owner.pod_key == pair[:2]]
        return f"List of {sources.kubelet.asked_at_seconds}, pods {of_name}, true {spells}"

    async def scrapes_without_end(self) -> None:
        while True:
            await self.scrape()
            await asyncio.sleep(0.05)

    async def live(self) -> None:
        """Things happen, and at the end the node is at rest."""
        for number in range(EVENTS):
            await asyncio.sleep(self.chance.uniform(*PAUSE_SECONDS))
            if number == EVENTS // 3:
                await self.restart_kubelet()
            elif number == 2 * EVENTS // 3:
                await self.outage()
            else:
                await self.change()

    async def restart_kubelet(self) -> None:
        """The kubelet goes and comes. One that lists no pod yet ends none.

        The exporter keeps an owner until the kubelet lists it again, or others for 10 seconds (retention.py).
        """
        await self.node.restart_kubelet(down_seconds=0.3, empty_seconds=_EMPTY_SECONDS)
        lists_from = self.life.now + _EMPTY_SECONDS
        kubelet = self.sources.kubelet
        await until(lambda: (kubelet.asked_at_seconds or 0.0) > lists_from and not kubelet.unlisted)

    async def change(self) -> None:
        """A pod comes, goes, or is made anew under its name."""
        name = self.changes.pop()
        happens: Callable[[], object] = getattr(self.life, name)
        gone = happens()
        if name == "take_stateful" and isinstance(gone, Pod):
            # a controller makes a pod anew only after the API server has told its watchers of the end of the old one
            await until(lambda: self.has_heard_of_the_end(gone))
            self.successors += self.life.successor(gone) is not None

    def has_heard_of_the_end(self, gone: Pod) -> bool:
        of_name = self.sources.pods.now.pods_of_names.get((gone.namespace, gone.name), ())
        return all(named.is_gone for named in of_name if named.pod.uid == gone.uid)

    async def outage(self) -> None:
        """The source of pods goes, pods come and go, and it comes back."""
        if self.by == "kubelet":
            self.node.pods_api.break_streams()
            self.life.exchange()
            return
        await self.node.api.stop()
        for _ in range(4):
            self.life.exchange()
            await asyncio.sleep(0.1)
        if gone := self.life.take_stateful():
            await asyncio.sleep(0.1)
            self.life.successor(gone)
        await asyncio.sleep(0.2)
        await self.node.api.start(urlsplit(self.node.api_url).port or 0)

    def knowable(self) -> Pairs:
        return {
            (spell.owner.namespace, spell.owner.pod, spell.owner.container, part.uuid)
            for spell in self.life.lasting.values()
            for part in spell.parts
            if spell.until == float("inf") and not spell.fault
        }


@pytest.mark.parametrize(("kind", "by"), [(Hami, "api"), (Gpushare, "kubelet"), (Kai, "api")])
async def test_no_scrape_over_sockets_names_a_wrong_owner(kind: type[SimulatedAllocator], by: str) -> None:
    loop = asyncio.get_running_loop()
    allocator = reusing(kind, unkindness=Unkindness(late_seconds=1.0, broken=50, foreign=50), seed=2)
    life = Life(gpus=8, seed=2, clock=lambda: round(loop.time() * SECOND), allocator=allocator)
    node = SimulatedNode(life)
    await node.start()
    settings = {"kubernetes_url": node.api_url} if by == "api" else {"kubelet_pods_socket": str(node.pods_socket)}
    config = config_of(
        kubelet_socket=str(node.socket),
        kubelet_max_age="0s",
        dcgm_url=node.url,
        resources=["*"],
        pods_source=by,
        allocators_pods="on",
        root=str(node.root),
        **settings,
    )
    try:
        async with running(config) as exporter:
            run = Run(life, node, exporter, by)
            scrapes = asyncio.create_task(run.scrapes_without_end())
            await run.live()

            async def all_is_shown() -> bool:
                return await run.scrape() == run.knowable()

            await until(all_is_shown, why=lambda: f"lasting {run.knowable()}")
            scrapes.cancel()
            with suppress(asyncio.CancelledError):
                await scrapes
            assert not run.wrong, run.wrong[0]
            assert run.scrapes > EVENTS
            assert run.successors > 1
    finally:
        await node.stop()
