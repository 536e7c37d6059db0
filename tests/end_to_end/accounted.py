"""A node whose pods come and go, behind the exporter in each `--sharing` mode and a Prometheus of its own for each.

What really happened is noted beside it. Run by itself, it says whether the books agree with that after some minutes:

    python -m tests.end_to_end.accounted --minutes 10
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

from aiohttp import web

from exporter.ownership.labels import COPY, DEVICE, SPLIT
from exporter.simulator.demo import STEP_SECONDS
from exporter.simulator.parts import PROFILES, REPLICAS, SimulatedGpu
from tests.support.components import free_port
from tests.support.exporter import config_of, hide_the_machine, running
from tests.support.prometheus import Prometheus, prometheus, shipped_jobs
from tests.support.simulated import SimulatedNode, World

MODES = (COPY, SPLIT, DEVICE)
ENERGY, ALLOCATED = "pod_gpu_energy_joules_total", "pod_gpu_allocated_seconds_total"
KINDS = ("whole", "time-sliced", "MIG")
SCRAPES_APART_SECONDS = 1.0  # in a run of minutes
K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a container holds: a GPU, a MIG instance of it, or shares of it; `ratio` is how much of the GPU that is."""

    namespace: str
    pod: str
    container: str
    uuid: str
    instance: str
    ratio: Fraction

    @property
    def workload(self) -> str:
        return self.pod.rpartition("-")[0]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What is so from a moment on: who holds what, and how active (0 to 1) each of it is."""

    at_seconds: float
    held: Mapping[Held, float]


def held_in(world: World) -> Mapping[Held, float]:
    """Who holds what, and how active it is."""
    parts = {}
    for gpu in world.gpus:
        parts[gpu.uuid] = (gpu, "", Fraction(1))
        for share in range(REPLICAS):
            parts[f"{gpu.uuid}::{share}"] = (gpu, "", Fraction(1, REPLICAS))
        for mig in gpu.instances:
            parts[mig.device_id] = (gpu, str(mig.instance_id), Fraction(PROFILES[mig.profile].slices, gpu.card.slices))
    found: dict[Held, float] = {}
    for pod in world.listed:
        for container in pod.containers:
            ratios = defaultdict[tuple[str, str], Fraction](Fraction)
            activities = {}
            for _, device_id in container.devices:
                gpu, instance, ratio = parts[device_id]
                ratios[gpu.uuid, instance] += ratio
                activities[gpu.uuid, instance] = world.machine.use_of(device_id.partition("::")[0]).activity
            for (uuid, instance), ratio in ratios.items():
                held = Held(
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=container.name,
                    uuid=uuid,
                    instance=instance,
                    ratio=ratio,
                )
                found[held] = activities[uuid, instance]
    return found


def kind_of(gpu: SimulatedGpu) -> str:
    return "MIG" if gpu.instances else "time-sliced" if gpu.shared else "whole"


@dataclass
class Truth:
    """What really happened in a span of time. Of energy the node's own meters are read at both ends of it.

    `struck` is the pod (namespace and name) that an XID befell.
    """

    world: World
    moments: list[Moment] = field(default_factory=list)
    began_at_seconds: float = 0.0
    ended_at_seconds: float = 0.0
    struck: tuple[str, str] = ("", "")
    _joules: Mapping[str, float] = field(default_factory=dict)
    _joules_after: Mapping[str, float] = field(default_factory=dict)

    def note(self) -> None:
        """Things may have changed."""
        self.moments.append(Moment(at_seconds=time.time(), held=held_in(self.world)))

    def begin(self) -> None:
        self.moments.clear()
        self.note()
        self.began_at_seconds, self._joules = self.moments[-1].at_seconds, self._meters()

    def end(self) -> None:
        self.note()
        self.ended_at_seconds, self._joules_after = self.moments[-1].at_seconds, self._meters()

    @property
    def seconds(self) -> float:
        return self.ended_at_seconds - self.began_at_seconds

    @property
    def longest_pause_seconds(self) -> float:
        """For how long this very process could not run at most: what it noted is only as good."""
        pauses = (after.at_seconds - now.at_seconds for now, after in pairwise(self.moments))
        return max(pauses, default=0.0)

    @property
    def window(self) -> str:
        """The span, as PromQL writes it."""
        return f"{self.seconds * 1000:.0f}ms"

    @property
    def now(self) -> Mapping[Held, float]:
        """Who held what at the end."""
        return self.moments[-1].held

    @property
    def shared_gpu(self) -> SimulatedGpu:
        """The GPU that most containers hold at the end."""
        holders = Counter(held.uuid for held in self.now if not held.instance)
        return max(self.world.gpus, key=lambda gpu: holders[gpu.uuid])

    def drawn_joules(self, kind: str | None = None) -> float:
        """What the GPUs of a kind drew, or all of them."""
        gpus = [gpu.uuid for gpu in self.world.gpus if kind in (None, kind_of(gpu))]
        return sum(self._joules_after[uuid] - self._joules[uuid] for uuid in gpus)

    def gpu_seconds(self, by: Callable[[Held], K], of: Callable[[float], float] = lambda _: 1.0) -> Mapping[K, float]:
        """The seconds of physical GPUs held, each weighed by `of` its activity, by what `by` says of who holds it."""
        sums = defaultdict[K, float](float)
        for now, after in pairwise(self.moments):
            for held, activity in now.held.items():
                sums[by(held)] += float(held.ratio) * of(activity) * (after.at_seconds - now.at_seconds)
        return sums

    def changed(self, by: Callable[[Held], K], of: Callable[[float], float] = lambda _: 1.0) -> Mapping[K, float]:
        """By how many GPUs, weighed in the same way, what was held has changed, ups and downs together."""
        sums = defaultdict[K, float](float)
        for now, after in pairwise(self.moments):
            for held in now.held.keys() | after.held.keys():
                before, then = (of(moment.held[held]) if held in moment.held else 0.0 for moment in (now, after))
                sums[by(held)] += float(held.ratio) * abs(then - before)
        return sums

    def _meters(self) -> dict[str, float]:
        return {gpu.uuid: self.world.energy_mj(gpu.uuid) / 1000 for gpu in self.world.gpus}


@dataclass
class Lab:
    """The simulated node, what is noted of it, and by `--sharing` mode the Prometheus before the exporter."""

    node: SimulatedNode
    truth: Truth
    servers: Mapping[str, Prometheus]

    async def live(self, seconds: float, step: Callable[[], None], *, steps_apart: float, quiet: float = 0.0) -> None:
        """Let time pass, with a step of the world every `steps_apart` seconds, but for the last `quiet` ones."""
        began = time.monotonic()
        next_step = steps_apart
        while (gone := time.monotonic() - began) < seconds:
            if next_step <= gone < seconds - quiet:
                next_step += steps_apart
                step()
            self.truth.note()
            await asyncio.sleep(min(0.2, seconds - gone))

    @contextmanager
    def without_a_page(self) -> Iterator[None]:
        """As if dcgm-exporter were starting anew."""
        self.node.dcgm.failure = lambda _: web.Response(status=503)
        try:
            yield
        finally:
            self.node.dcgm.failure = None

    def settle(self) -> None:
        """From here on all queries are about the end of the span that was noted."""
        for server in self.servers.values():
            server.at_seconds = self.truth.ended_at_seconds


@contextmanager
def prometheus_for_each(folder: Path, scrapes_apart: str) -> Iterator[tuple[dict[str, str], dict[str, Prometheus]]]:
    """By mode the address that an exporter is to listen on, and the server that scrapes it by the shipped config."""
    with ExitStack() as stack:
        targets = {mode: f"127.0.0.1:{free_port()}" for mode in MODES}
        servers = {}
        for mode, target in targets.items():
            (folder / mode).mkdir()
            servers[mode] = stack.enter_context(
                prometheus(folder / mode, shipped_jobs(target, scrapes_apart), scrapes_apart)
            )
        yield targets, servers


@asynccontextmanager
async def lab(
    node: SimulatedNode, targets: Mapping[str, str], servers: Mapping[str, Prometheus], interval: str
) -> AsyncIterator[Lab]:
    """The node and its exporters, once every Prometheus has scraped them twice."""
    async with AsyncExitStack() as stack:
        await node.start()
        stack.push_async_callback(node.stop)
        for mode, target in targets.items():
            config = config_of(
                kubelet_socket=str(node.socket),
                kubelet_pods_socket=str(node.pods_socket),
                dcgm_url=node.url,
                kubernetes_url=node.api_url,
                inventory_file=str(node.inventory_file),
                kubelet_max_age="0s",
                workload_labels="app.kubernetes.io/name",
                sharing=mode,
                accounting_interval=interval,
                web_listen_address=target,
            )
            await stack.enter_async_context(running(config))
        await asyncio.gather(*(asyncio.to_thread(server.wait_for_scrapes, 2) for server in servers.values()))
        yield Lab(node, Truth(node.world), servers)


@dataclass(frozen=True, kw_only=True)
class Sum:
    """What Prometheus says of a family and a kind of GPU behind one mode, and what was so.

    `increase` is sum(increase()), which guesses what lies between a series' ends and the samples beside them. `grown`
    is by how much the rows grew from one end of the span to the other. `per_second` is what a second of all these GPUs
    makes, or of their mean power.
    """

    mode: str
    family: str
    kind: str
    increase: float
    grown: float
    real: float
    per_second: float


def books(truth: Truth, servers: Mapping[str, Prometheus]) -> Iterable[Sum]:
    """All sums."""
    window = truth.window
    for mode, server in servers.items():
        for kind in KINDS:
            uuids = {gpu.uuid for gpu in truth.world.gpus if kind_of(gpu) == kind}
            held = sum(seconds for uuid, seconds in truth.gpu_seconds(lambda held: held.uuid).items() if uuid in uuids)
            drawn = truth.drawn_joules(kind)
            for family, real, per_second in (
                (ENERGY, drawn, drawn / truth.seconds),
                (ALLOCATED, held, float(len(uuids))),
            ):
                rows = f'{family}{{UUID=~"{"|".join(uuids)}"}}'
                yield Sum(
                    mode=mode,
                    family=family,
                    kind=kind,
                    increase=server.number(f"sum(increase({rows}[{window}]))"),
                    # A row that is new began at 0, and one that is gone stays what it was. A busy machine may be late
                    # for the scrape at which the span began: the one before says it.
                    grown=server.number(
                        f"sum(last_over_time({rows}[{window}])) - sum(last_over_time({rows}[10s] offset {window}))"
                    ),
                    real=real,
                    per_second=per_second,
                )


async def _watch(minutes: float, folder: Path, interval: float, collect: float) -> bool:
    """The demo's node, for so long. Says whether all sums are right within one look, one scrape and one read."""
    with prometheus_for_each(folder, f"{SCRAPES_APART_SECONDS:g}s") as (targets, servers):
        node = SimulatedNode(World(gpus=8, shared=2, mig=1, seed=1), collect_seconds=collect)
        async with lab(node, targets, servers, f"{interval:g}s") as found:
            await found.live(2 * interval, node.world.live, steps_apart=STEP_SECONDS)
            found.truth.begin()
            await found.live(minutes * 60, node.world.live, steps_apart=STEP_SECONDS)
            found.truth.end()
            found.settle()
            return _print(books(found.truth, servers), interval + SCRAPES_APART_SECONDS + collect)


def _print(sums: Iterable[Sum], most_seconds: float) -> bool:
    """Beside each number of Prometheus' stands of how many seconds' GPU time or mean power it is off."""
    print(
        f"{'--sharing':10}{'GPUs':12}{'':33}{'real':>10}{'rows grew':>11}{'off, s':>8}{'increase()':>12}{'off, s':>8}"
    )
    all_right = True
    for one in sums:
        grown, increase = ((said - one.real) / one.per_second for said in (one.grown, one.increase))
        all_right &= max(abs(grown), abs(increase)) <= most_seconds
        print(f"{one.mode:10}{one.kind:12}{one.family:33}{one.real:10.0f}", end="")
        print(f"{one.grown:11.0f}{grown:+8.2f}{one.increase:12.0f}{increase:+8.2f}")
    print("all within one look, one scrape and one read of the GPUs" if all_right else "WRONG")
    return all_right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--interval", type=float, default=10.0, help="seconds between looks")
    parser.add_argument("--collect", type=float, default=30.0, help="seconds between dcgm-exporter's reads of the GPUs")
    arguments = parser.parse_args()
    hide_the_machine()
    with tempfile.TemporaryDirectory() as made:
        sys.exit(not asyncio.run(_watch(arguments.minutes, Path(made), arguments.interval, arguments.collect)))
