"""Suspected hangs: what a page shows of all GPUs of a job for ten minutes, look by look. Pure, but for what it keeps.

`waiting_kernel`: a kernel is resident all the time on every GPU of the job, while memory, tensor cores and links rest
and the power is near idle. A collective that waits for a rank that never comes looks so (NVIDIA/nccl issue 968,
nebius/soperator issue 796, marin-community/marin issue 7344).

`waiting_for_data`: a job whose tensor cores worked drops from one look to the next, and since then every GPU works in
short bursts only, with little traffic. A loader that is too slow or a file system that hangs looks so.

A job is not judged if a page lacks a field that these need, or if several containers share one of its devices.
docs/hangs.md says what looks alike.

Tests: tests/accounts/test_watched_jobs.py, tests/accounts/test_hangs.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from exporter.accounts.hang_signs import DeviceSigns, Signs
from exporter.accounts.power_levels import Levels, PowerLevels
from exporter.model.devices import DeviceKey
from exporter.model.hangs import HangReason, SuspectedHang
from exporter.model.pods import Owner

SECOND_NS = 1_000_000_000
SUSPECTED_AFTER_NS = 600 * SECOND_NS
# A page that is away, or a look that is late, for longer than this breaks off what was seen.
MOST_BLIND_NS = 60 * SECOND_NS
_RESIDENT = 0.95  # GR_ENGINE_ACTIVE is a mean, and the driver's utilisation wavers by a few percent
_RESTS = 0.02  # of memory and tensor cores; MEM_COPY_UTIL comes in whole percents
_PIPES_REST = 0.03  # a kernel that polls takes a few warps of the integer pipe
_QUIET_BYTES = 1e9  # a second; a checkpoint or a collective moves tens of GB, the flags of one that waits less
_NEAR_IDLE = 0.25  # of the way from idle to busy
_NOT_AT_WORK = 0.65  # of the same: a small card at full clocks draws much even if its kernels wait
# At work: the tensor cores are used, and not only to read memory as a decoder does.
_WORKS = 0.5
_TENSOR_WORKS = 0.1
_TENSOR_PER_DRAM = 0.5
# Starving: at most this part of the usual activity, and a burst at least every two minutes.
_STARVES = 0.25
_BURST = 0.005
_MOST_BETWEEN_BURSTS_NS = 120 * SECOND_NS
_FORGETS = 0.05  # the weight of a look in the usual activity
_FEWEST_VALUES = 3  # of power: a page that nobody writes any more repeats one


class Job(NamedTuple):
    """The containers that are judged together: those of a workload or, if workloads are not known, of a pod."""

    namespace: str
    pod: str
    workload_name: str = ""
    workload_kind: str = ""


class JobDevice(NamedTuple):
    """A device in the hands of a job. `is_whole`: one container has it alone. `is_mig`: its power is not its own."""

    key: DeviceKey
    owner: Owner
    job: Job
    model: str
    is_whole: bool = True
    is_mig: bool = False


@dataclass(slots=True)
class _Streak:
    """How long a reason has been seen without a break; `since_ns` is None if it is not seen."""

    since_ns: int | None = None
    is_moving: bool = False
    _powers: set[float] = field(default_factory=set)

    def go_on(self, at_ns: int, power: float) -> None:
        if self.since_ns is None:
            self.since_ns = at_ns
        if not self.is_moving:
            self._powers.add(power)
            self.is_moving = len(self._powers) >= _FEWEST_VALUES

    def end(self) -> None:
        self.since_ns = None
        self.is_moving = False
        self._powers.clear()

    def is_long(self, at_ns: int) -> bool:
        """Whether it is as long as a suspicion needs, on a page whose values moved meanwhile."""
        return self.since_ns is not None and self.is_moving and at_ns - self.since_ns >= SUSPECTED_AFTER_NS


@dataclass(slots=True)
class _AtWork:
    """What was seen of a job at work: for how long, how active it usually was, and when it was last."""

    ns: int = 0
    usual: float = 0.0
    last_ns: int | None = None

    def note(self, activity: float, step_ns: int, at_ns: int) -> None:
        self.ns += step_ns
        self.usual = activity if self.last_ns is None else self.usual + _FORGETS * (activity - self.usual)
        self.last_ns = at_ns

    def is_fresh(self, at_ns: int, most_blind_ns: int) -> bool:
        """Whether it worked for long, and up to a moment ago."""
        is_long = self.ns >= SUSPECTED_AFTER_NS
        return is_long and self.last_ns is not None and at_ns - self.last_ns <= most_blind_ns


class WatchedJob:
    """What is remembered of one job on its devices. A job with other devices or containers is another job.

    It keeps a streak for each reason, since both may be seen of one job, one after the other. Before the job starves it
    must have worked: `_work` has for how long, and how active it usually was. `_burst_ns` is the last moment at which
    every device did something while it starves.

    Nothing is judged if a container has only a part of one of the devices: what a page shows of it is the work of
    several.
    """

    def __init__(self, held: Sequence[JobDevice], at_ns: int) -> None:
        self._held = held
        self._seen_ns = at_ns
        self._waiting = _Streak()
        self._starving = _Streak()
        self._burst_ns = 0
        self._work = _AtWork()
        self._is_whole = all(device.is_whole for device in held)
        self._most_blind_ns = MOST_BLIND_NS
        self._suspected: SuspectedHang | None = None

    def is_of(self, held: Sequence[JobDevice]) -> bool:
        """Whether these are the containers and devices that it watches."""
        return held == self._held

    def look(
        self, signs: Signs, levels: Levels, at_ns: int, most_blind_ns: int = MOST_BLIND_NS
    ) -> SuspectedHang | None:
        """The suspicion after this look; None if there is none.

        Args:
            signs: what the page shows, by device. A look that lacks a device is blind. Blind looks end what was seen
                only if they last.
            levels: the powers that were learned, by model.
            at_ns: the moment of the look, by a clock that never steps back.
            most_blind_ns: how long blind looks, or none at all, break off nothing; what was suspected stays so long.
        """
        if not self._is_whole:
            return None
        seen = [signs[device.key] for device in self._held if device.key in signs]
        self._most_blind_ns = most_blind_ns
        if at_ns - self._seen_ns > most_blind_ns:
            self._waiting.end()
            self._starving.end()
            self._work = _AtWork()
            self._suspected = None
        if len(seen) < len(self._held):
            return self._suspected
        step_ns = at_ns - self._seen_ns
        self._seen_ns = at_ns
        power = sum(sign.power or 0.0 for sign in seen)
        self._note_waiting(seen, levels, power, at_ns)
        self._note_starving(seen, power, step_ns, at_ns)
        self._suspected = self._suspicion(seen, levels, at_ns)
        return self._suspected

    def _note_waiting(self, seen: Sequence[DeviceSigns], levels: Levels, power: float, at_ns: int) -> None:
        for device, signs in zip(self._held, seen, strict=True):
            if not waits(signs, None if device.is_mig else levels.get(device.model), is_mig=device.is_mig):
                self._waiting.end()
                return
        self._waiting.go_on(at_ns, power)

    def _note_starving(self, seen: Sequence[DeviceSigns], power: float, step_ns: int, at_ns: int) -> None:
        """Note a look at work, or one in which all devices starve after work, with a burst now and then."""
        activity = _mean(signs.gr_engine or 0.0 for signs in seen)
        if all(map(_works, seen)):
            self._starving.end()
            self._work.note(activity, step_ns, at_ns)
            return
        is_open = self._starving.since_ns is not None or self._work.is_fresh(at_ns, self._most_blind_ns)
        if not is_open or not all(_starves(signs, self._work.usual) for signs in seen):
            self._starving.end()
            return
        if self._starving.since_ns is None or min(signs.gr_engine or 0.0 for signs in seen) >= _BURST:
            self._burst_ns = at_ns
        if at_ns - self._burst_ns > _MOST_BETWEEN_BURSTS_NS:
            self._starving.end()
        else:
            self._starving.go_on(at_ns, power)

    def _suspicion(self, seen: Sequence[DeviceSigns], levels: Levels, at_ns: int) -> SuspectedHang | None:
        if self._waiting.is_long(at_ns):
            return self._suspect("waiting_kernel", self._waiting, self._waiting_words(seen, levels), at_ns)
        if self._starving.is_long(at_ns):
            activity = _mean(signs.gr_engine or 0.0 for signs in seen)
            bursts = f"{activity:.0%} busy, in bursts, for {{}} after work at {self._work.usual:.0%}"
            words = f"{bursts}: it seems to wait for data"
            return self._suspect("waiting_for_data", self._starving, words, at_ns)
        return None

    def _suspect(self, reason: HangReason, streak: _Streak, words: str, at_ns: int) -> SuspectedHang:
        job = self._held[0].job
        since_ns = streak.since_ns or at_ns
        return SuspectedHang(
            reason=reason,
            message=words.format(f"{(at_ns - since_ns) // (60 * SECOND_NS)} min"),
            since_seconds=since_ns / SECOND_NS,
            holders=tuple(sorted({device.owner for device in self._held})),
            devices=frozenset(device.key for device in self._held),
            workload_name=job.workload_name,
            workload_kind=job.workload_kind,
        )

    def _waiting_words(self, seen: Sequence[DeviceSigns], levels: Levels) -> str:
        activity = _mean(signs.activity or 0.0 for signs in seen)
        words = f"{activity:.0%} busy for {{}}"
        if self._held[0].is_mig:
            return f"{words}, while tensor cores, other pipes and memory rest"
        words += f" at {_mean(signs.power or 0.0 for signs in seen):.0f} W"
        level = levels.get(self._held[0].model)
        if level is None:
            return f"{words}, while tensor cores, other pipes and memory rest"
        return f"{words}; the model idles at {level.idle:.0f} W and works at {level.busy:.0f} W"


def waits(signs: DeviceSigns, level: PowerLevels | None, *, is_mig: bool = False) -> bool:
    """Whether a device shows a kernel that is resident and does nothing.

    A kernel may compute in the caches, without memory and tensor cores. If the page has the other pipes, they must
    rest, and the power must not be that of a GPU at work. If it lacks them, only a power near idle shows it. The
    power of a MIG instance is not measured.
    """
    if signs.power is None or not _is_resident_at_rest(signs):
        return False
    if not is_mig and max(signs.pcie or 0.0, signs.nvlink or 0.0) > _QUIET_BYTES:
        return False
    power = None if level is None else level.part(signs.power)
    if signs.pipes is None or None in (signs.gr_engine, signs.dram, signs.tensor):
        return power is not None and power <= _NEAR_IDLE
    return signs.pipes <= _PIPES_REST and (power is None or power <= _NOT_AT_WORK)


def _is_resident_at_rest(signs: DeviceSigns) -> bool:
    """Whether a kernel is resident all the time, and neither memory nor tensor cores are at work."""
    activity, memory = signs.activity, signs.memory
    if activity is None or memory is None:
        return False
    return activity >= _RESIDENT and memory <= _RESTS and (signs.tensor or 0.0) <= _RESTS


def _works(signs: DeviceSigns) -> bool:
    """Whether a training's kernels work on the device; a decoder reads far more memory for each matrix."""
    if signs.gr_engine is None or signs.tensor is None or signs.dram is None:
        return False
    is_tensor = signs.tensor >= _TENSOR_WORKS and signs.tensor >= _TENSOR_PER_DRAM * signs.dram
    return is_tensor and signs.gr_engine >= _WORKS


def _starves(signs: DeviceSigns, usual: float) -> bool:
    """Whether the device does far less than usual, with little on PCIe, which a checkpoint fills."""
    if signs.gr_engine is None or signs.pcie is None or signs.power is None:
        return False
    return signs.pcie <= _QUIET_BYTES and signs.gr_engine <= _STARVES * usual


def _mean(values: Iterable[float]) -> float:
    numbers = [*values]
    return sum(numbers) / len(numbers)


Jobs = Mapping[Job, Sequence[JobDevice]]


def jobs_of(held: Iterable[JobDevice]) -> Jobs:
    """The devices in the hands of each job."""
    by_job: dict[Job, list[JobDevice]] = {}
    for device in held:
        by_job.setdefault(device.job, []).append(device)
    return by_job


class WatchedJobs:
    """The jobs of a node that hold devices. A job begins anew if its containers or devices change."""

    def __init__(self) -> None:
        self._jobs: dict[Job, WatchedJob] = {}

    def look(
        self, jobs: Jobs, signs: Signs, levels: Levels, at_ns: int, most_blind_ns: int = MOST_BLIND_NS
    ) -> Sequence[SuspectedHang]:
        """The suspicions after this look. Jobs that hold nothing any more are forgotten."""
        watched_jobs: dict[Job, WatchedJob] = {}
        suspected: list[SuspectedHang] = []
        for job, devices in jobs.items():
            watched = self._jobs.get(job)
            if watched is None or not watched.is_of(devices):
                watched = WatchedJob(devices, at_ns)
            watched_jobs[job] = watched
            hang = watched.look(signs, levels, at_ns, most_blind_ns)
            if hang is not None:
                suspected.append(hang)
        self._jobs = watched_jobs
        return sorted(suspected, key=lambda hang: hang.holders)
