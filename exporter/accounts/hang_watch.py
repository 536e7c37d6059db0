"""The watch over hangs: it takes in each look of the accounts, and keeps the suspicions.

Scrapes change nothing. After a restart of the exporter a suspicion takes ten minutes anew.

Tests: tests/accounts/test_hangs.py.
"""

from collections import deque
from collections.abc import Iterator

from exporter.accounts.entries import Entry
from exporter.accounts.hang_signs import NO_SIGNS, Signs, SignsReader
from exporter.accounts.holders import HeldGpu, Holders
from exporter.accounts.power_levels import PowersOfModels
from exporter.accounts.watched_jobs import MOST_BLIND_NS, SECOND_NS, Job, JobDevice, Jobs, WatchedJobs, jobs_of
from exporter.model.hangs import NO_HANGS, HangEvent, Hangs, SuspectedHang
from exporter.model.pods import Owner
from exporter.model.slices import Work
from exporter.model.snapshot import Snapshot

_MOST_EVENTS = 100
_LATE = 2  # looks that are later than this many intervals see a gap
_SEEN = ("", "no_gpu")  # reasons of a match (ownership/owners.py): it has samples, or is a claim's network device


class HangWatch:
    """Watches a node's jobs.

    `hangs` is what outputs show: the suspicions of the last look, and the last events. It is another object after each
    look that changes it. The watch outlives a reload of the settings, as the accounts do.
    """

    def __init__(self) -> None:
        self.hangs: Hangs = NO_HANGS
        self._reader = SignsReader()
        self._powers = PowersOfModels()
        self._watched = WatchedJobs()
        self._jobs: Jobs = {}
        self._jobs_are_of: tuple[object, ...] = ()
        self._events: deque[HangEvent] = deque(maxlen=_MOST_EVENTS)

    def work_for(self, snapshot: Snapshot, holders: Holders, at_ns: int, interval_ns: int = 0) -> Work[None]:
        """Note a look, at a moment of a clock that never steps back, with the holders that the ledger found at it.

        Looks are `interval_ns` apart: one of them may be late or blind.
        """
        signs = (yield from self._reader.read(snapshot.joined)) if snapshot.joined is not None else NO_SIGNS
        self._learn(signs, holders)
        yield
        jobs = self._jobs_now(snapshot, holders)
        most_blind_ns = max(MOST_BLIND_NS, _LATE * interval_ns)
        suspected = tuple(self._watched.look(jobs, signs, self._powers.levels, at_ns, most_blind_ns))
        self._note_events(suspected, at_ns)
        if suspected or self.hangs.suspected:
            self.hangs = Hangs(suspected=suspected, events=tuple(self._events))

    def _jobs_now(self, snapshot: Snapshot, holders: Holders) -> Jobs:
        """The jobs on the node. They are worked out again when holders, their labels or their samples change."""
        matches = snapshot.owners.matches
        unseen = {match.assignment.owner.pod_key for match in matches if match.reason not in _SEEN}
        gpus = [*holders.held.values()]  # the same objects while the same containers hold them
        labels = [entry.labels for gpu in gpus for _, entry in gpu.holders]
        models = [holders.models.get(gpu.key.uuid, "") for gpu in gpus]
        made_of = (gpus, labels, models, unseen)
        if made_of != self._jobs_are_of:
            held = (device for gpu, model in zip(gpus, models, strict=True) for device in _held_devices(gpu, model))
            self._jobs = jobs_of(
                device._replace(is_whole=device.is_whole and device.owner.pod_key not in unseen) for device in held
            )
            self._jobs_are_of = made_of
        return self._jobs

    def _learn(self, signs: Signs, holders: Holders) -> None:
        """Learn the powers of GPUs that are not cut: the power on an instance's row is its GPU's."""
        for uuid, gpu in holders.held.items():
            of_gpu = signs.get(gpu.key)
            if of_gpu is not None and uuid in holders.models and not gpu.is_cut:
                self._powers.note(holders.models[uuid], of_gpu)
        self._powers.settle()

    def _note_events(self, suspected: tuple[SuspectedHang, ...], at_ns: int) -> None:
        before = {(hang.holders, hang.reason): hang for hang in self.hangs.suspected}
        now = {(hang.holders, hang.reason): hang for hang in suspected}
        at_seconds = at_ns / SECOND_NS
        for key, hang in before.items():
            if key not in now:
                self._events.appendleft(HangEvent(at_seconds=at_seconds, hang=hang, is_end=True))
        for key, hang in now.items():
            if key not in before:
                self._events.appendleft(HangEvent(at_seconds=at_seconds, hang=hang))


def _held_devices(gpu: HeldGpu, model: str) -> Iterator[JobDevice]:
    """The devices of a GPU that containers hold, once for each holder."""
    for device in gpu.devices:
        is_whole = len(device.holders) == 1 and not device.is_shared and not device.is_granted
        for entry, _ in device.holders:
            if entry.owner is not None:
                yield JobDevice(
                    key=device.key,
                    owner=entry.owner,
                    job=_job_of(entry, entry.owner),
                    model=model,
                    is_whole=is_whole,
                    is_mig=gpu.is_cut or device.key.uuid.startswith("MIG-"),
                )


def _job_of(entry: Entry, owner: Owner) -> Job:
    """The job of a container: its workload, if the accounts' labels name it, else its pod."""
    labels = dict(entry.labels)
    name = labels.get("workload_name", "")
    if not name:
        return Job(owner.namespace, owner.pod)
    return Job(owner.namespace, "", name, labels.get("workload_kind", ""))
