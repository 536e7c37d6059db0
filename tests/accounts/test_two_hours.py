"""Two hours of a node whose jobs last 20 s and whose page is read every 30 s, beside what really was, to the second."""

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

import pytest

from exporter.accounts.ledger import Rules
from tests.support.looks import GPU, SECOND, Held, Looks, row

HOURS, LOOK, READ = 7200, 10, 30  # seconds
GPUS = 16
IDLE_WATTS, BUSY_WATTS = 60, 340
# 20 s jobs of two teams, and longer ones of a third
TEAMS = {"short": 20, "brief": 20, "long": 300}
RULES = Rules(keep_ns=10**18)


@dataclass
class Job:
    """A pod that holds a GPU from `begin` to `end`, and how active it keeps it (0 to 1)."""

    team: str
    begin: float
    end: float
    active: float


@dataclass
class Node:
    """What really happens on each GPU. dcgm-exporter reads the GPUs at `phase`, and every 30 s after it."""

    random: Random
    jobs: list[list[Job]] = field(default_factory=list)
    truth: dict[str, dict[str, float]] = field(default_factory=dict)
    pages: dict[float, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        random = self.random
        self.phase = random.uniform(0, READ)
        self.truth = {of: defaultdict(float) for of in ("allocated", "active", "energy")}
        for _ in range(GPUS):
            at, jobs = random.uniform(0, 30), []
            while at < HOURS - 60:
                team = random.choice(tuple(TEAMS))
                lasts = TEAMS[team] if TEAMS[team] < READ else random.uniform(READ, 2 * TEAMS[team])
                lasts = min(lasts, HOURS - 60 - at)
                jobs.append(Job(team, at, at + lasts, random.uniform(0.2, 1)))
                at += lasts + random.choice((0, 0, random.uniform(0, 40)))
            self.jobs.append(jobs)
            for job in jobs:
                seconds = job.end - job.begin
                self.truth["allocated"][job.team] += seconds
                self.truth["active"][job.team] += seconds * job.active
                self.truth["energy"][job.team] += seconds * (IDLE_WATTS + BUSY_WATTS * job.active)

    def held(self, at: float) -> Held:
        """Who holds which GPU at a moment."""
        return {
            f"{job.team}-{gpu}-{number}": [("nvidia.com/gpu", GPU(gpu))]
            for gpu, jobs in enumerate(self.jobs)
            for number, job in enumerate(jobs)
            if job.begin <= at < job.end
        }

    def page(self, at: float) -> str:
        """dcgm-exporter's page: the last read, with the mean activity since the one before."""
        last = self.phase + (at - self.phase) // READ * READ
        if last not in self.pages:
            self.pages = {last: self.read(last)}
        return self.pages[last]

    def read(self, last: float) -> str:
        text = ""
        for gpu in range(GPUS):
            active = (self.worked(gpu, last) - self.worked(gpu, last - READ)) / READ
            joules = IDLE_WATTS * max(0.0, last + READ) + BUSY_WATTS * self.worked(gpu, last)
            text += row("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", str(round(joules * 1000)), gpu)
            text += row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{active:.6f}", gpu)
        return text

    def worked(self, gpu: int, until: float) -> float:
        """For how long the GPU was active up to a moment."""
        return sum(max(0.0, min(job.end, until) - job.begin) * job.active for job in self.jobs[gpu])


def counted(looks: Looks) -> dict[str, dict[str, float]]:
    """What the accounts say, by team ("" for nobody)."""
    found: dict[str, dict[str, float]] = {
        of: defaultdict(float) for of in ("allocated", "active", "observed", "energy")
    }
    for account in looks.ledger.accounts.rows:
        team = account.owner.pod.partition("-")[0] if account.owner else ""
        found["allocated"][team] += (account.amounts.get("allocated_ns") or 0) / SECOND
        found["active"][team] += (account.amounts.get("active_ns") or 0) / SECOND
        found["observed"][team] += (account.amounts.get("observed_ns") or 0) / SECOND
        found["energy"][team] += (account.amounts.get("energy_uj") or 0) / 1e6
    return found


# issue 15, lines 3 and 4, and "Must show" 2
@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("away", [0, 240])
def test_two_hours_of_short_jobs_are_counted_as_they_were(seed: int, away: int) -> None:
    node = Node(Random(seed))
    looks = Looks(rules=RULES)
    for at in range(0, HOURS + 1, LOOK):
        is_away = at % 885 >= 885 - away
        looks.at(at, None if is_away else node.page(at), node.held(at))
    found = counted(looks)
    for team in TEAMS:
        assert found["allocated"][team] == pytest.approx(node.truth["allocated"][team], rel=0.01)
        used = node.truth["active"][team] / node.truth["allocated"][team]
        assert found["active"][team] / found["observed"][team] == pytest.approx(used, rel=0.04)
        if not away:
            assert found["active"][team] == pytest.approx(node.truth["active"][team], rel=0.04)
        assert found["energy"][team] == pytest.approx(node.truth["energy"][team], rel=0.04)
