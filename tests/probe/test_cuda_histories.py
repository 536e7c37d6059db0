"""Random histories of processes that call CUDA, beside totals that are kept plainly."""

from collections import defaultdict
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.model.cuda import CudaCounts, CudaDevice, CudaKey, CudaProcess, CudaReading, CudaUse, ProcessId, WorkSpan
from exporter.model.devices import DeviceKey
from exporter.model.pods import Owner
from exporter.probe.cuda_ledger import CudaLedger, united_ns

OWNERS = (*(Owner(namespace="ml", pod=pod, container="main") for pod in "ab"), None)
KEYS = (DeviceKey(uuid="GPU-1"), DeviceKey(uuid="GPU-2"))
COUNTERS = [each for each in CudaCounts._fields if each not in {"memory_bytes", "peak_bytes", "errors"}]
STEP = 1_000


def sizes(counts: CudaCounts) -> dict[str, int]:
    """Every counter by name, those of directions and codes one by one."""
    found: dict[str, int] = {}
    for name in COUNTERS:
        value = getattr(counts, name)
        found |= {f"{name}{i}": n for i, n in enumerate(value)} if isinstance(value, tuple) else {name: value}
    return found | {f"error{code}": count for code, count in counts.errors.items()}


@dataclass
class World:
    """Processes that start, count and end. `known` are those of which it is known by now whose they are."""

    random: Random
    at: int = 0
    next_pid: int = 1
    running: dict[ProcessId, dict[int, CudaCounts]] = field(default_factory=dict)
    last: dict[CudaDevice, CudaCounts] = field(default_factory=dict)  # of all that ever were, as told last
    ended: set[ProcessId] = field(default_factory=set)
    told_ended: set[ProcessId] = field(default_factory=set)
    owner: dict[ProcessId, Owner | None] = field(default_factory=dict)
    known: set[ProcessId] = field(default_factory=set)
    released: dict[CudaDevice, int] = field(default_factory=dict)
    peaks: defaultdict[CudaKey, int] = field(default_factory=lambda: defaultdict(int))

    def key(self, device: CudaDevice) -> CudaKey | None:
        return (self.owner[device.process], KEYS[device.ordinal]) if device.process in self.known else None

    def step(self) -> CudaReading:
        self.at += STEP
        for _ in range(self.random.randrange(3)):
            # pids come again
            process = ProcessId(self.random.randrange(1, 4), self.at + self.next_pid)
            self.next_pid += 1
            self.running[process] = {}
            self.owner[process] = self.random.choice(OWNERS)
        for uses in self.running.values():
            for ordinal in self.random.choices((0, 1), k=self.random.randrange(3)):
                uses[ordinal] = self._more(uses.get(ordinal, CudaCounts()))
        shown: dict[ProcessId, int | None] = dict.fromkeys(self.running)
        counts = {CudaDevice(id_, ordinal): of for id_, uses in self.running.items() for ordinal, of in uses.items()}
        for id_ in [id_ for id_ in self.running if self.random.random() < 0.3]:
            uses = self.running.pop(id_)
            self.ended.add(id_)
            if self.random.random() < 0.7:
                shown[id_] = self.at  # told to have ended, once
            else:
                del shown[id_]  # gone without a word, and with what it did since the last reading
                for ordinal in uses:
                    counts.pop(CudaDevice(id_, ordinal))
        self.last |= counts
        for device, of in self.last.items():
            if device.process in self.ended:
                self.released.setdefault(device, of.memory_bytes)
        return CudaReading(
            read_at_ns=self.at,
            processes={id_: CudaProcess(id=id_, ended_ns=ended) for id_, ended in shown.items()},
            counts=counts,
            spans=tuple(self._span(device) for device in counts if self.random.random() < 0.8),
        )

    def learn(self) -> None:
        """Of some it is known from here on whose they are."""
        self.known |= {id_ for id_ in self.owner if self.random.random() < 0.4}

    def _more(self, counts: CudaCounts) -> CudaCounts:
        grown = {name: getattr(counts, name) + self.random.randrange(5) for name in ("launches", "threads", "frees")}
        memory = self.random.randrange(100)
        errors = dict(counts.errors)
        errors[self.random.randrange(1, 4)] = errors.get(self.random.randrange(1, 4), 0) + 5
        errors = {code: max(count, counts.errors.get(code, 0)) for code, count in errors.items()}
        return counts._replace(
            **grown,
            copies=tuple(count + self.random.randrange(3) for count in counts.copies),
            active_ns=counts.active_ns + self.random.choice((0, self.random.randrange(STEP + 1))),
            memory_bytes=memory,
            peak_bytes=max(counts.peak_bytes, memory + self.random.randrange(10)),
            errors=errors,
        )

    def _span(self, device: CudaDevice) -> WorkSpan:
        begin = self.at - self.random.randrange(2 * STEP)
        end = begin + self.random.randrange(STEP)
        return WorkSpan(device, begin, end, end - begin)

    def totals(self) -> dict[CudaKey, dict[str, int]]:
        """What every row is to have counted."""
        rows: defaultdict[CudaKey, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        for device, counts in self.last.items():
            key = self.key(device)
            if key is not None:
                for name, size in sizes(counts).items():
                    rows[key][name] += size
        return {key: dict(row) for key, row in rows.items()}

    def check(self, uses: dict[CudaKey, CudaUse]) -> None:
        assert {key: sizes(use.counts) for key, use in uses.items()} == self.totals()
        for key, use in uses.items():
            of_key = [device for device in self.last if self.key(device) == key]
            run = [device for device in of_key if device.process not in self.ended]
            assert use.counts.memory_bytes == sum(self.last[device].memory_bytes for device in run)
            assert use.processes == len({device.process for device in run})
            assert use.released_bytes == sum(self.released.get(device, 0) for device in of_key)
            peaks = [self.last[device].peak_bytes for device in of_key]
            self.peaks[key] = max(self.peaks[key], use.counts.memory_bytes, *peaks)
            assert use.counts.peak_bytes == self.peaks[key]
            assert use.active_seconds * 1e9 <= sum(self.last[device].active_ns for device in of_key) + 1e-3


def fell(before: CudaUse, now: CudaUse) -> bool:
    """Whether anything fell that never may."""
    one, other = (
        {
            **sizes(use.counts),
            "peak": use.counts.peak_bytes,
            "released": use.released_bytes,
            "active": use.active_seconds,
        }
        for use in (before, now)
    )
    return any(other[name] < size for name, size in one.items())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 25))
def test_rows_say_what_all_their_processes_counted_and_nothing_ever_falls(seed: int, steps: int) -> None:
    world, ledger = World(Random(seed)), CudaLedger()
    before: dict[CudaKey, CudaUse] = {}
    for _ in range(steps):
        reading = world.step()
        ledger.add(reading, world.key, keep_ns=10**18)
        world.check(dict(ledger.uses))
        assert not any(fell(use, ledger.uses[key]) for key, use in before.items())
        before = dict(ledger.uses)
        world.learn()
        if world.random.random() < 0.5:
            ledger.settle(world.key)
            world.check(dict(ledger.uses))
            assert not any(fell(use, ledger.uses[key]) for key, use in before.items())
            before = dict(ledger.uses)
    world.known = set(world.owner)
    ledger.settle(world.key)
    world.check(dict(ledger.uses))
    assert ledger.waiting == 0
    assert not ledger.lost


SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10)).map(lambda span: (span[0], sum(span))), max_size=6)


@settings(deadline=None)
@given(st.lists(SPANS, min_size=1, max_size=4))
def test_where_spans_tell_all_the_time_is_that_of_their_union(spans: list[list[tuple[int, int]]]) -> None:
    moments = [{moment for begin, end in of_one for moment in range(begin, end)} for of_one in spans]
    times = [len(each) for each in moments]
    assert united_ns(times, spans, 100) == len(set().union(*moments))


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 100), min_size=1, max_size=4), st.lists(SPANS, max_size=4), st.none() | st.integers(0, 200)
)
def test_the_united_time_lies_between_the_longest_time_and_the_sum(
    times: list[int], spans: list[list[tuple[int, int]]], window: int | None
) -> None:
    united = united_ns(times, spans, window)
    assert max(times) <= united <= sum(times)
    assert window is None or united <= max(window, *times)
