"""The ledger of the CUDA probe: totals of containers that never fall, whatever becomes of processes."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from exporter.model.cuda import (
    OTHER_ERRORS,
    CudaCounts,
    CudaDevice,
    CudaKey,
    CudaProcess,
    CudaReading,
    CudaUse,
    ProcessId,
    WorkSpan,
)
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.probe import cuda_ledger
from exporter.probe.cuda_ledger import CudaLedger, united_ns

A, B = (Owner(namespace="ml", pod=pod, container="main") for pod in "ab")
GPU, OTHER = DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-2", instance="7")
SECOND = 1_000_000_000
KEEP = 300 * SECOND
Counted = Mapping[tuple[int, int], CudaCounts]


def device(pid: int, ordinal: int = 0) -> CudaDevice:
    return CudaDevice(ProcessId(pid, pid * 1000), ordinal)


def counts(**more: Any) -> CudaCounts:
    return CudaCounts(**more)


def reading(seconds: float, counted: Counted, ended: Iterable[int] = (), spans: Iterable[WorkSpan] = ()) -> CudaReading:
    """`counted` is by pid and ordinal."""
    ids = {device(pid).process for pid, _ in counted}
    return CudaReading(
        read_at_ns=round(seconds * SECOND),
        processes={id_: CudaProcess(id=id_, ended_ns=1 if id_.pid in set(ended) else None) for id_ in ids},
        counts={device(pid, ordinal): of for (pid, ordinal), of in counted.items()},
        spans=tuple(spans),
    )


class Kept:
    """A ledger, and who has which process: pid → owner. A device's ordinal 0 is GPU, 1 is OTHER."""

    def __init__(self, whose: Mapping[int, Owner | None], keep_ns: int = KEEP) -> None:
        self.ledger = CudaLedger()
        self.whose = dict(whose)
        self.keep_ns = keep_ns
        self.there: frozenset[Owner] = frozenset()

    def key(self, of: CudaDevice) -> CudaKey | None:
        pid = of.process.pid
        return (self.whose[pid], (GPU, OTHER)[of.ordinal]) if pid in self.whose else None

    def add(self, seconds: float, counted: Counted, **more: Any) -> "Kept":
        self.ledger.add(reading(seconds, counted, **more), self.key, keep_ns=self.keep_ns, there=self.there)
        return self

    def use(self, owner: Owner | None = A, key: DeviceKey = GPU) -> CudaUse:
        return self.ledger.uses[owner, key]


def test_what_processes_count_is_added_up_for_their_container() -> None:
    kept = Kept({1: A, 2: A, 3: B, 4: None})
    one = counts(launches=3, threads=96, copies=(1, 2, 0, 0, 0), copied_bytes=(8, 16, 0, 0, 0), errors={2: 1})
    kept.add(0, {(1, 0): one, (1, 1): counts(frees=1), (2, 0): one, (3, 0): one, (4, 0): counts(syncs=1, sync_ns=5)})
    kept.add(1, {(1, 0): one._replace(launches=5, errors={2: 2, 100: 1}), (2, 0): one, (3, 0): one, (4, 0): counts()})
    assert kept.use().counts == counts(
        launches=8, threads=192, copies=(2, 4, 0, 0, 0), copied_bytes=(16, 32, 0, 0, 0), errors={2: 3, 100: 1}
    )
    assert kept.use(A, OTHER).counts == counts(frees=1)
    assert kept.use(B).counts == one
    assert kept.use(None).counts == counts(syncs=1, sync_ns=5)
    assert [kept.use(owner).processes for owner in (A, B, None)] == [2, 1, 1]


def test_a_row_keeps_what_it_has_when_processes_end() -> None:
    kept = Kept({1: A, 2: A})
    kept.add(0, {(1, 0): counts(launches=3, memory_bytes=100, peak_bytes=150), (2, 0): counts(memory_bytes=7)})
    assert (kept.use().counts.memory_bytes, kept.use().counts.peak_bytes) == (107, 150)
    # told to have ended, with its last counts, and told again
    for second in (1, 2):
        last = counts(launches=4, memory_bytes=90, peak_bytes=150)
        kept.add(second, {(1, 0): last, (2, 0): counts(memory_bytes=7)}, ended=[1])
        assert (kept.use().counts.launches, kept.use().counts.memory_bytes) == (4, 7)
        assert (kept.use().released_bytes, kept.use().processes) == (90, 1)
    # not told any more, and never told to have ended
    kept.add(3, {})
    assert kept.use() == CudaUse(counts=counts(launches=4, peak_bytes=150), released_bytes=97)
    kept.add(4, {})
    assert kept.use().released_bytes == 97
    assert not kept.ledger.processes


def test_the_peak_is_the_most_that_a_reading_showed_or_one_process_had() -> None:
    kept = Kept({1: A, 2: A})
    kept.add(0, {(1, 0): counts(memory_bytes=10, peak_bytes=10), (2, 0): counts(memory_bytes=20, peak_bytes=25)})
    assert kept.use().counts.peak_bytes == 30
    kept.add(1, {(1, 0): counts(peak_bytes=10), (2, 0): counts(memory_bytes=5, peak_bytes=31)})
    assert (kept.use().counts.memory_bytes, kept.use().counts.peak_bytes) == (5, 31)
    kept.add(2, {})
    assert kept.use().counts.peak_bytes == 31


def test_a_pid_that_another_process_has_now_is_another_process() -> None:
    kept = Kept({1: A})
    kept.add(0, {(1, 0): counts(launches=10)})
    later = CudaDevice(ProcessId(1, 99), 0)
    two = CudaReading(
        read_at_ns=SECOND,
        processes={later.process: CudaProcess(id=later.process)},
        counts={later: counts(launches=12)},
    )
    kept.ledger.add(two, kept.key, keep_ns=KEEP)
    assert (kept.use().counts.launches, kept.use().processes) == (22, 1)


def test_what_fell_began_anew() -> None:
    kept = Kept({1: A})
    kept.add(0, {(1, 0): counts(launches=10, frees=5)})
    kept.add(1, {(1, 0): counts(launches=2, frees=5)})
    assert (kept.use().counts.launches, kept.use().counts.frees) == (12, 10)


def test_a_time_that_fell_was_told_too_long() -> None:
    kept = Kept({1: A})
    for second, active_ns, sync_ns in ((0, 50, 5), (1, 40, 9), (2, 45, 8), (3, 60, 10)):
        kept.add(second, {(1, 0): counts(launches=10, active_ns=active_ns, sync_ns=sync_ns)})
        assert kept.use().counts.launches == 10
    assert (kept.use().counts.active_ns, kept.use().counts.sync_ns) == (60, 10)


def test_another_probe_begins_at_nothing() -> None:
    kept = Kept({1: A})
    kept.add(0, {(1, 0): counts(launches=10, memory_bytes=8), (2, 0): counts(launches=1)})
    kept.ledger.begin_anew()
    kept.add(1, {(1, 0): counts(launches=10), (3, 0): counts(launches=4)})
    kept.whose |= {2: A, 3: A}
    kept.ledger.settle(kept.key)
    assert kept.use() == CudaUse(counts=counts(launches=25, peak_bytes=8), processes=2)


def test_counts_wait_until_it_is_known_whose_they_are() -> None:
    kept = Kept({})
    kept.add(0, {(1, 0): counts(launches=1, memory_bytes=5, peak_bytes=6), (2, 0): counts(launches=10, active_ns=7)})
    assert kept.ledger.uses == {}
    kept.add(1, {(1, 0): counts(launches=3, memory_bytes=5, peak_bytes=6)})
    assert kept.ledger.uses == {}
    assert (kept.ledger.waiting, {id_.pid for id_ in kept.ledger.processes}) == (1, {1, 2})
    kept.whose |= {1: A, 2: A}
    kept.ledger.settle(kept.key)
    settled = CudaUse(
        counts=counts(launches=13, active_ns=7, memory_bytes=5, peak_bytes=6), active_seconds=7 / SECOND, processes=1
    )
    assert kept.use() == settled
    assert kept.ledger.waiting == 0
    kept.ledger.settle(kept.key)
    kept.add(2, {(1, 0): counts(launches=3, memory_bytes=5, peak_bytes=6)})
    assert kept.use() == settled
    # of what came before nobody asks any more whose it is
    kept.whose = {}
    kept.add(3, {(1, 0): counts(launches=4)})
    assert kept.use().counts.launches == 14


def test_what_waits_is_limited_in_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_ledger, "MOST_WAITING", 2)
    kept = Kept({}, keep_ns=10 * SECOND)
    everyone = {(pid, 0): counts(launches=1) for pid in range(5)}
    kept.add(0, everyone, ended=[1, 2])
    assert kept.ledger.waiting == 0, "the probe still tells of them"
    kept.add(1, {(0, 0): counts(launches=1)})
    assert (kept.ledger.waiting, kept.ledger.lost) == (2, {"waiting": 2})
    kept.add(11, {(0, 0): counts(launches=1)})
    assert (kept.ledger.waiting, kept.ledger.lost) == (0, {"waiting": 4})
    assert {id_.pid for id_ in kept.ledger.processes} == {0}
    kept.whose = dict.fromkeys(range(5), A)
    kept.add(12, {(0, 0): counts(launches=1)})
    assert kept.use().counts.launches == 1


def test_rows_of_containers_that_are_gone_are_kept_for_a_while() -> None:
    kept = Kept({1: A, 2: B, 3: None}, keep_ns=10 * SECOND)
    kept.there = frozenset({B})
    kept.add(0, {(pid, 0): counts(launches=pid) for pid in (1, 2, 3)})
    kept.add(1, {})
    kept.add(10.9, {})
    assert kept.ledger.uses.keys() == {(A, GPU), (B, GPU), (None, GPU)}
    kept.add(11, {})
    assert kept.ledger.uses.keys() == {(B, GPU)}, "the container is there, and may go on"
    kept.there = frozenset()
    kept.add(12, {})
    kept.add(13, {(2, 0): counts(launches=5)})  # another process of the same pid's owner
    kept.add(30, {(2, 0): counts(launches=5)})
    assert kept.use(B).counts.launches == 7


def test_rows_are_limited_and_those_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_ledger, "MOST_ROWS", 2)
    kept = Kept({pid: Owner(namespace="n", pod=str(pid), container="c") for pid in range(5)})
    kept.add(0, {(0, 0): counts(launches=1), (1, 0): counts(launches=1)})
    kept.add(1, {(1, 0): counts(launches=1), (2, 0): counts(launches=1)})
    assert {owner.pod for owner, _ in kept.ledger.uses if owner} == {"0", "1"}, "nobody was gone yet"
    assert kept.ledger.lost == {"rows": 1}
    kept.add(2, {(1, 0): counts(launches=1), (2, 0): counts(launches=3)})
    assert {owner.pod for owner, _ in kept.ledger.uses if owner} == {"1", "2"}
    assert kept.use(kept.whose[2]).counts.launches == 2, "the first is lost, and counted"
    assert (kept.ledger.rows, kept.ledger.lost) == (2, {"rows": 1})


def test_a_row_counts_64_codes_of_errors_and_the_rest_together() -> None:
    kept = Kept({1: A, 2: A})
    kept.add(0, {(1, 0): counts(errors=dict.fromkeys(range(1, 61), 1))})
    kept.add(1, {(1, 0): counts(errors=dict.fromkeys(range(1, 61), 2)), (2, 0): counts(errors={9: 1})})
    kept.add(2, {(2, 0): counts(errors={9: 1, **dict.fromkeys(range(100, 150), 3)})})
    errors = kept.use().counts.errors
    assert len(errors) == 65
    assert (errors[9], errors[OTHER_ERRORS], sum(errors.values())) == (3, 46 * 3, 120 + 1 + 150)


def span(pid: int, begin: float, end: float, ordinal: int = 0) -> WorkSpan:
    begin_ns, end_ns = round(begin * SECOND), round(end * SECOND)
    return WorkSpan(device(pid, ordinal), begin_ns, end_ns, end_ns - begin_ns)


def active(kept: Kept, at: float, times: Mapping[int, float], *spans: WorkSpan) -> float:
    """By how much a reading at this moment, with these times by pid, lets the row grow."""
    before = kept.use().active_seconds if kept.ledger.uses else 0.0
    kept.add(at, {(pid, 0): counts(active_ns=round(ns * SECOND)) for pid, ns in times.items()}, spans=spans)
    return round(kept.use().active_seconds - before, 9)


def test_the_time_of_one_active_process_is_its_own() -> None:
    kept = Kept({1: A, 2: A})
    assert active(kept, 0, {1: 0, 2: 0}) == 0
    # whatever the spans say
    assert active(kept, 10, {1: 4, 2: 0}, span(1, 0, 1), span(2, 0, 9)) == 4
    assert active(kept, 20, {1: 14.5, 2: 0}) == 10.5, "it is the process' own, even of a moment more than the window"


@pytest.mark.parametrize(
    ("times", "spans", "united"),
    [
        ((4, 4), (span(1, 0, 4), span(2, 4, 8)), 8),  # one after the other
        ((4, 4), (span(1, 0, 4), span(2, 0, 4)), 4),  # together
        ((4, 4), (span(1, 0, 4), span(2, 2, 6)), 6),  # in part
        ((4, 4), (span(1, 0, 1), span(1, 3, 4), span(2, 0, 2)), 6),  # spans of a part of the time: 3 of 4
        ((4, 4), (span(1, -50, 4), span(2, 2, 60)), 80 / 12),  # 4 and 8 of them lie between the readings, 10 in all
        ((4, 4), (span(1, 0, 4),), 8),  # nothing is said of the other one
        ((4, 4), (), 8),
        ((9, 9), (), 10),  # no more than has passed
        ((9, 1), (span(1, 0, 1), span(2, 0, 1)), 9),  # no less than one of them was
        ((4, 4), (span(1, -5, -1), span(2, 11, 12)), 8),  # spans of other times say nothing
        ((4, 4), (span(1, 0, 4), span(2, 0, 4, ordinal=1)), 8),  # of another device
    ],
)
def test_the_times_of_several_are_united_as_far_as_spans_overlap(
    times: tuple[float, float], spans: tuple[WorkSpan, ...], united: float
) -> None:
    kept = Kept({1: A, 2: A})
    active(kept, 0, {1: 0, 2: 0})
    assert active(kept, 10, {1: times[0], 2: times[1]}, *spans) == pytest.approx(united)


def test_processes_of_several_containers_and_devices_are_not_united() -> None:
    kept = Kept({1: A, 2: B})
    both = (span(1, 0, 4), span(2, 0, 4), span(1, 0, 4, ordinal=1))
    at_four = {key: counts(active_ns=4 * SECOND) for key in ((1, 0), (1, 1), (2, 0))}
    kept.add(10, at_four, spans=both)
    assert [kept.use(*key).active_seconds for key in ((A, GPU), (A, OTHER), (B, GPU))] == [4, 4, 4]


def test_of_the_first_reading_it_is_not_known_how_long_it_is() -> None:
    kept = Kept({1: A, 2: A})
    assert active(kept, 1, {1: 9, 2: 9}) == 18


def test_time_that_waited_is_of_the_time_in_which_it_waited() -> None:
    kept = Kept({1: A})
    active(kept, 0, {1: 0})
    assert active(kept, 10, {1: 1, 2: 9}) == 1
    kept.whose[2] = A
    # since the first of these readings, 20 seconds have passed
    assert active(kept, 20, {1: 11, 2: 19}) == 20


def test_united_ns_of_many() -> None:
    assert united_ns([5], [], 1) == 5
    assert united_ns([3, 3, 3], [[(0, 3)], [(1, 4)], [(2, 5)]], None) == 5
    assert united_ns([3, 3, 3], [[(0, 3)], [(0, 0)], []], None) == 9
