"""A node of random jobs on whole GPUs, on shares and on MIG instances, and a ledger that knows all that really was.

It knows nothing of looks and pages: from job to job it reckons who held what, what ran, and what each GPU drew. The
pages are what dcgm-exporter would have read of that world, each time it reads it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from exporter.accounts.ledger import Rules
from exporter.accounts.stretches import SmNs
from exporter.model.devices import DeviceKey
from tests.support.looks import GPU, SECOND, Held, Looks, kernels, row

HOURS, LOOK = 7200, 10  # seconds
IDLE_WATTS, BUSY_WATTS = 60, 340
IDLE_BELOW = 0.05
SLICES = 7
SHARED = "nvidia.com/gpu.shared"
# GPU_I_ID and slices
CUT = (("1", 3), ("2", 2), ("3", 1), ("4", 1))
PROFILES = {1: "1g.10gb", 2: "2g.20gb", 3: "3g.40gb"}
NOBODY = ""


@dataclass(frozen=True)
class Job:
    """A pod that holds its place from `begin` to `end`, and how active it keeps it (0 to 1)."""

    pod: str
    begin: float
    end: float
    active: float

    @property
    def team(self) -> str:
        return self.pod.partition("-")[0]


@dataclass(frozen=True)
class Team:
    """How long its jobs last, which part of them do nothing, and how active the others are, in seconds and 0 to 1."""

    lasts: tuple[float, float]
    idle: float = 0.0
    active: tuple[float, float] = (0.2, 1.0)


@dataclass(frozen=True)
class Place:
    """What one pod can hold at a time: of which GPU, which part of it, and by which id the kubelet hands it out."""

    gpu: int
    instance: str
    part: float
    resource: str
    device_id: str


def places_of(gpu: int, kind: str) -> Sequence[Place]:
    """The places of a GPU that is "whole", "shared" by two, or cut into MIG instances ("mig")."""
    if kind == "mig":
        return [
            Place(gpu, instance, of / SLICES, f"nvidia.com/mig-{PROFILES[of]}", f"MIG-{gpu}-{instance}")
            for instance, of in CUT
        ]
    if kind == "shared":
        return [Place(gpu, "", 0.5, SHARED, f"{GPU(gpu)}::{share}") for share in range(2)]
    return [Place(gpu, "", 1.0, "nvidia.com/gpu", GPU(gpu))]


@dataclass
class Had:
    """What one team had: seconds of GPUs, and joules. `unknown` is what the accounts could not say idle or busy of."""

    allocated: float = 0.0
    active: float = 0.0
    idle: float = 0.0
    energy: float = 0.0
    unknown: float = 0.0
    observed: float = 0.0


Ledger = Mapping[str, Had]


@dataclass
class Moment:
    """A time in which nothing changes on a GPU: who holds its places, and how long it is."""

    begin: float
    end: float
    jobs: Mapping[Place, Job]

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def activity(self, instance: str) -> float:
        """That of a device: of two pods on it, the kernels of one run while the other's wait."""
        return min(1.0, sum(job.active for place, job in self.jobs.items() if place.instance == instance))

    def watts(self, places: Sequence[Place]) -> float:
        # a share has all of its GPU's slices, an instance its own
        busy = sum(job.active * (place.part if place.instance else 1.0) for place, job in self.jobs.items())
        return IDLE_WATTS + BUSY_WATTS * (busy if places else 0.0)


@dataclass
class World:
    """What really happens on each GPU, for `seconds`. dcgm-exporter reads the GPUs every `read` seconds.

    `kinds` are those of the GPUs, by number, `models` too. A job is followed by a pause of up to `pause` seconds, or by
    none with the chance `no_pause`; the first one begins within `begins` seconds. `is_measured`: NVML tells the kernels
    of each holder, but those of MIG instances.
    """

    random: Random
    kinds: Sequence[str]
    teams: Mapping[str, Team]
    read: int
    pause: tuple[float, float] = (0.0, 40.0)
    no_pause: float = 0.0
    begins: float = 30.0
    is_measured: bool = False
    models: Mapping[int, str] = field(default_factory=dict)
    moments: list[list[Moment]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.phase = self.random.uniform(0, self.read)
        self.places = [places_of(gpu, kind) for gpu, kind in enumerate(self.kinds)]
        self.moments = [list(self._moments(gpu)) for gpu in range(len(self.kinds))]
        self._text: tuple[float, str] = (-1.0, "")
        self._ran: dict[str, float] = defaultdict(float)
        self._joules: dict[int, float] = defaultdict(float)

    def _moments(self, gpu: int) -> Iterator[Moment]:
        jobs = {place: list(self._jobs(place, number)) for number, place in enumerate(self.places[gpu])}
        # before the first job the GPUs rest, also before the first look
        ends = {
            -2.0 * self.read,
            0.0,
            float(HOURS),
            *(at for each in jobs.values() for job in each for at in (job.begin, job.end)),
        }
        left = {place: iter(each) for place, each in jobs.items()}
        now = {place: next(each, None) for place, each in left.items()}
        for begin, end in pairwise(sorted(ends)):
            holds = {}
            for place in jobs:
                while (job := now[place]) is not None and job.end <= begin:
                    now[place] = next(left[place], None)
                if job is not None and job.begin <= begin:
                    holds[place] = job
            yield Moment(begin, end, holds)

    def _jobs(self, place: Place, number: int) -> Iterator[Job]:
        random, at, made = self.random, self.random.uniform(0, self.begins), 0
        end = HOURS - 2 * self.read
        while at < end:
            name = random.choice(tuple(self.teams))
            team = self.teams[name]
            lasts = min(random.uniform(*team.lasts), end - at)
            active = 0.0 if random.random() < team.idle else random.uniform(*team.active)
            if place.part == 0.5 and not place.instance:
                active /= 2  # so that both have room
            yield Job(f"{name}-{place.gpu}-{number}-{made}", at, at + lasts, active)
            made += 1
            at += lasts + (0.0 if random.random() < self.no_pause else random.uniform(*self.pause))

    def truth(self) -> Ledger:
        """What each team really had, and nobody ("")."""
        had: defaultdict[str, Had] = defaultdict(Had)
        for gpu, moments in enumerate(self.moments):
            for moment in moments:
                self._book(had, gpu, moment)
        return had

    def _book(self, had: Mapping[str, Had], gpu: int, moment: Moment) -> None:
        seconds, places = moment.seconds, self.places[gpu]
        for place, job in moment.jobs.items():
            team = had[job.team]
            team.allocated += seconds * place.part
            is_own = self.is_measured and not place.instance
            active = job.active / place.part if is_own else moment.activity(place.instance)
            team.active += seconds * place.part * active
            team.idle += seconds * place.part if job.active < IDLE_BELOW else 0
        watts = moment.watts(places)
        if self.kinds[gpu] == "mig":
            by = {place: place.part * (moment.jobs[place].active if place in moment.jobs else 0) for place in places}
            by = by if any(by.values()) else {place: place.part for place in places}
        else:
            by = {place: job.active if self.is_measured else 1.0 for place, job in moment.jobs.items()}
            by = by if any(by.values()) else dict.fromkeys(moment.jobs or places, 1.0)
        for place, part in by.items():
            team_name = moment.jobs[place].team if place in moment.jobs else NOBODY
            had[team_name].energy += seconds * watts * part / sum(by.values())

    def drawn(self) -> float:
        """What all GPUs drew from the first look's page to the last one's, in joules."""
        first, last = (self.phase + (at - self.phase) // self.read * self.read for at in (0, HOURS))
        return sum(
            seconds * moment.watts(self.places[gpu])
            for gpu in range(len(self.kinds))
            for moment, seconds in self.between(gpu, first, last)
        )

    def between(self, gpu: int, begin: float, end: float) -> Iterator[tuple[Moment, float]]:
        """The moments of a time, each with the seconds of it that are in that time."""
        for moment in self._near(gpu, begin):
            if moment.begin >= end:
                break
            seconds = min(end, moment.end) - max(begin, moment.begin)
            if seconds > 0:
                yield moment, seconds

    def _near(self, gpu: int, begin: float) -> Iterator[Moment]:
        moments = self.moments[gpu]
        low, high = 0, len(moments)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if moments[middle].end <= begin else (low, middle)
        yield from moments[low:]

    def held(self, at: float) -> Held:
        """Who holds what at a moment."""
        return {
            job.pod: [(place.resource, place.device_id)]
            for gpu in range(len(self.kinds))
            for moment, _ in self.between(gpu, at, at + 1e-6)
            for place, job in moment.jobs.items()
        }

    def page(self, at: float) -> str:
        """dcgm-exporter's page: the last read, with the mean activity since the one before."""
        last = self.phase + (at - self.phase) // self.read * self.read
        if self._text[0] != last:
            self._text = last, "".join(self._rows(gpu, last) for gpu in range(len(self.kinds)))
        return self._text[1]

    def _rows(self, gpu: int, last: float) -> str:
        model = self.models.get(gpu, "NVIDIA H100 80GB HBM3")
        window = list(self.between(gpu, last - self.read, last))
        self._joules[gpu] += sum(seconds * moment.watts(self.places[gpu]) for moment, seconds in window)
        text = ""
        for instance in dict.fromkeys(place.instance for place in self.places[gpu]):
            active = sum(seconds * moment.activity(instance) for moment, seconds in window) / self.read
            profile = PROFILES.get(dict(CUT).get(instance, 0), "")
            for family, value in (
                ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", str(round(self._joules[gpu] * 1000))),
                ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{active:.6f}"),
            ):
                text += row(family, value, gpu, instance, profile, model=model)
        return text

    def kernels(self, at: float) -> SmNs | None:
        """For how long kernels ran up to a moment, of those who hold something then, as NVML tells it.

        Of a pod that came since the look before it tells how active it was, and not since when.
        """
        if not self.is_measured:
            return None
        times: dict[DeviceKey, dict[object, int]] = {}
        for gpu, kind in enumerate(self.kinds):
            for moment, seconds in self.between(gpu, at - LOOK, at):
                for job in moment.jobs.values():
                    self._ran[job.pod] += job.active * (seconds if job.begin <= at - LOOK else 0)
            for moment, _ in self.between(gpu, at, at + 1e-6):
                for job in moment.jobs.values():
                    self._ran[job.pod] += job.active * (LOOK / 2 if job.begin > at - LOOK else 0)
            if kind != "mig":
                pods = [job.pod for moment, _ in self.between(gpu, at, at + 1e-6) for job in moment.jobs.values()]
                ran = {pod: round(self._ran[pod] * SECOND) for pod in pods}
                times.update(kernels({**ran, NOBODY: 0}, gpu))  # type: ignore[arg-type]
        return times  # type: ignore[return-value]


_AMOUNTS = {
    "allocated_ns": ("allocated", SECOND),
    "active_ns": ("active", SECOND),
    "idle_ns": ("idle", SECOND),
    "idle_unknown_ns": ("unknown", SECOND),
    "observed_ns": ("observed", SECOND),
    "energy_uj": ("energy", 1e6),
}


def accounts_of(world: World, away: int = 0) -> Ledger:
    """What the accounts say of that world: the last value of each counter that a scrape at each look has seen.

    dcgm-exporter answers nothing for `away` seconds of each 885.
    """
    cut = [gpu for gpu, kind in enumerate(world.kinds) if kind == "mig"]
    looks = Looks(
        rules=Rules(keep_ns=(90 + away) * SECOND),
        mig={f"MIG-{gpu}-{instance}": (gpu, instance, PROFILES[of]) for gpu in cut for instance, of in CUT},
        slices=SLICES,
        offered={(SHARED, DeviceKey(uuid=GPU(gpu))): 2 for gpu, kind in enumerate(world.kinds) if kind == "shared"},
    )
    last: dict[tuple[str, DeviceKey], Mapping[str, int]] = {}
    for at in range(0, HOURS + 1, LOOK):
        page = world.page(at)
        looks.at(at, None if at % 885 >= 885 - away else page, world.held(at), sm_ns=world.kernels(at))
        looks.ledger.note_shown()
        for account in looks.ledger.accounts.rows:
            last[account.owner.pod if account.owner else NOBODY, account.device] = account.amounts
    had: defaultdict[str, Had] = defaultdict(Had)
    for (pod, _), amounts in last.items():
        team = had[pod.partition("-")[0]]
        for name, (of, unit) in _AMOUNTS.items():
            setattr(team, of, getattr(team, of) + amounts.get(name, 0) / unit)
    return had
