"""Two months of two clusters with 50 teams, as two Prometheus replicas scraped them, and what the bill of them must be.

All that happens does so when there is a scrape, so that a bill has no scrape's blur at its ends.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

from exporter.report.rows import FAMILIES

NEW_YORK = ZoneInfo("America/New_York")
PRICES = {"H200": Decimal("4.19"), "H100": Decimal("3.333"), "A100": Decimal("1.87"), "L40S": Decimal("0.99")}
KWH = Decimal("0.2875")
CLUSTERS = ("east", "west")
TEAMS = tuple(f"team-{number:02}" for number in range(50))
GPUS_OF_A_NODE = 8
HOUR = 3600
STEP = 8 * HOUR
NOBODYS_WATTS = 25


def first_of(month: int) -> int:
    return int(datetime(2026, month, 1, tzinfo=NEW_YORK).timestamp())


EDGES = tuple(first_of(month) for month in (2, 3, 4))
BEGIN, END = EDGES[0] - STEP, EDGES[-1]
SCRAPES = tuple(sorted({*range(BEGIN - BEGIN % STEP, END, STEP), *EDGES}))


@dataclass(frozen=True)
class Holding:
    """A container's hold on a part of a GPU, in seconds of Unix time. `restarts` begin its counters anew."""

    cluster: str
    node: str
    uuid: str
    instance: str
    team: str
    pod: str
    part: Fraction
    begin: int
    end: int
    active: Fraction
    idle: Fraction
    watts: int

    def within(self, begin: int, end: int) -> int:
        """Its seconds in a span."""
        return max(0, min(self.end, end) - max(self.begin, begin))


@dataclass
class Month:
    """`models` is of each node's name. `restarts` are the moments at which exporters began to count anew, by place."""

    holdings: list[Holding] = field(default_factory=list)
    models: dict[str, str] = field(default_factory=dict)
    restarts: dict[tuple[str, str], int] = field(default_factory=dict)

    def hours(
        self, begin: int, end: int, of: Callable[[Holding], Fraction] = lambda _: Fraction(1)
    ) -> dict[str, Fraction]:
        """GPU-hours that were held in a span, by model."""
        sums = dict.fromkeys(PRICES, Fraction(0))
        for one in self.holdings:
            sums[self.models[one.node]] += one.part * one.within(begin, end) * of(one) / HOUR
        return sums


def make_month() -> Month:
    """Whole GPUs, quarters, MIG instances, a claim shared by two, short jobs, free GPUs, restarts without state."""
    chance = random.Random(20)
    month = Month(models={f"gpu-{number}": model for number, model in enumerate(PRICES)})
    teams = iter(TEAMS * 40)
    for cluster in CLUSTERS:
        for node in month.models:
            for gpu in range(GPUS_OF_A_NODE - 1):  # the last one of each node is free
                uuid = f"GPU-{cluster}-{node}-{gpu}"
                month.holdings += _of_gpu(chance, cluster, node, uuid, gpu, teams)
    month.restarts = {("east", "gpu-1"): SCRAPES[len(SCRAPES) // 4], ("west", "gpu-2"): SCRAPES[-10]}
    return month


def _of_gpu(
    chance: random.Random, cluster: str, node: str, uuid: str, gpu: int, teams: Iterator[str]
) -> Iterator[Holding]:
    parts: tuple[tuple[str, Fraction], ...] = {
        0: (("", Fraction(1, 4)),) * 4,
        1: tuple((str(number), Fraction(number, 7)) for number in (1, 2, 4)),
        2: (("", Fraction(1, 2)),) * 2,
    }.get(gpu, (("", Fraction(1)),))
    for number, (instance, part) in enumerate(parts):
        team = next(teams)
        # long ones, some that come or go in between, and on two GPUs of each node one short job after the other
        moments = sorted(chance.sample(range(1, len(SCRAPES) - 1), 2))
        spans = [(0, len(SCRAPES) - 1)] if gpu < 4 else [(moments[0], moments[1])]
        if gpu > 4:
            spans = [(place, place + 1) for place in range(3, len(SCRAPES) - 3, chance.randrange(13, 23))]
        for job, (begin, end) in enumerate(spans):
            active = Fraction(chance.randrange(1, 9), 8)
            yield Holding(
                cluster,
                node,
                uuid,
                instance,
                team if gpu <= 4 else next(teams),
                f"train-{job}-{gpu}{number}" if gpu > 4 else f"serve-{gpu}{number}-0",
                part,
                SCRAPES[begin],
                SCRAPES[end],
                active,
                (1 - active) / 2,
                chance.randrange(2, 20) * 25,
            )


def write_month(month: Month, path: Path) -> None:
    """The samples of both replicas as OpenMetrics. The second one is 7 s later, and each is away for two days."""
    with path.open("w") as file:
        for place, family in enumerate(FAMILIES):
            file.write(f"# TYPE {family.removesuffix('_total')} counter\n")
            for one in month.holdings:
                _write_counter(file.write, family, place, one, month.restarts.get((one.cluster, one.node)))
            if family.startswith("pod_gpu_energy"):
                for cluster in CLUSTERS:
                    for node in month.models:
                        nobody = _of_nobody(cluster, node)
                        _write_counter(file.write, family, place, nobody, month.restarts.get((cluster, node)))
        _write_gauges(file.write, month)
        file.write("# EOF\n")


def _of_nobody(cluster: str, node: str) -> Holding:
    uuid, nothing = f"GPU-{cluster}-{node}-{GPUS_OF_A_NODE - 1}", Fraction(0)
    return Holding(cluster, node, uuid, "", "", "", Fraction(1), SCRAPES[0], END, nothing, nothing, NOBODYS_WATTS)


def _write_counter(write: Callable[[str], object], family: str, place: int, one: Holding, restart: int | None) -> None:
    per_second = (
        one.part,
        one.part * one.active,
        one.part * one.idle,
        Fraction(one.watts),
        one.part,
        Fraction(0),  # a page tells of each whether it was idle
    )[place]
    container = "main" if one.pod else ""
    labels = (
        f'namespace="{one.team}",pod="{one.pod}",container="{container}",UUID="{one.uuid}",GPU_I_ID="{one.instance}",'
        f'node="{one.node}",cluster="{one.cluster}",job="gpu",instance="{one.node}:9400"'
    )
    for replica, at_scrape in _scrapes(one.begin, one.end):
        since = one.begin if restart is None or at_scrape <= restart else max(one.begin, restart)
        value = float(per_second * max(0, min(at_scrape, one.end) - since))
        write(f'{family}{{{labels},prometheus_replica="{replica}"}} {value!r} {at_scrape}\n')


def _scrapes(begin: int, end: int) -> Iterator[tuple[str, int]]:
    """A series' samples end with what it is about; those of the second replica before its last ones at its end."""
    times = [moment for moment in SCRAPES if begin <= moment <= end]
    away = SCRAPES[len(SCRAPES) // 3], SCRAPES[len(SCRAPES) // 3 + 6]
    yield from (("a", moment) for moment in times if not away[0] < moment < away[1] or moment in (begin, end))
    yield from (("b", moment + 7) for moment in times if moment < end and not away[0] < moment - 40 * HOUR < away[1])


def _write_gauges(write: Callable[[str], object], month: Month) -> None:
    write("# TYPE node_gpu_capacity gauge\n")
    for cluster in CLUSTERS:
        for node, model in month.models.items():
            labels = f'node="{node}",model="{model}",cluster="{cluster}",job="gpu",instance="{node}:9400"'
            for moment in range(BEGIN - BEGIN % 300 - 600, END + 1, 300):
                write(f'node_gpu_capacity{{{labels},prometheus_replica="a"}} {GPUS_OF_A_NODE} {moment}\n')
    write("# TYPE pod_gpu_info gauge\n")
    devices: Iterable[tuple[str, str]] = {(one.uuid, one.node): None for one in month.holdings}
    for uuid, node in devices:
        for moment in SCRAPES[::3]:
            labels = f'UUID="{uuid}",modelName="{month.models[node]}",node="{node}"'
            write(f'pod_gpu_info{{{labels},prometheus_replica="a"}} 1 {moment}\n')
