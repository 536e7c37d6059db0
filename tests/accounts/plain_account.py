"""An account of a node that is kept plainly, in fractions, to hold the ledger against.

It knows nothing of how the ledger works: it has every look, and reckons from the start each time.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

INTERVAL, OLD = 10, 120  # seconds
IDLE_BELOW = Fraction(1, 20)
TRACES = 1_000  # ns of kernels that are a proportion, and no time

Place = tuple[int, str]  # GPU and GPU_I_ID
Had = dict[tuple[str, Place], Fraction]  # by pod ("" for nobody) and device


@dataclass
class Look:
    """What a look saw. `held` is by device and pod as a part of the GPU; `counters` are in mJ, by GPU.

    `slices` and `activity` are of the devices on the page; `sampled` are those on the last page that there was, which
    may be this one. `shared` are the devices that are handed out in shares, and `kernels` for how
    long kernels ran, by device and pod ("" for nobody's). The next process has measured nothing.
    """

    at: int
    failed: str
    counters: Mapping[int, int]
    held: Mapping[Place, Mapping[str, Fraction]]
    slices: Mapping[Place, int]
    activity: Mapping[Place, Fraction]
    shared: frozenset[Place]
    kernels: Mapping[Place, Mapping[str, int]]
    sampled: frozenset[Place] = frozenset()
    is_last_of_process: bool = False

    def page(self, gpu: int) -> object:
        """What the page says of a GPU."""
        return self.counters.get(gpu), {place: of for place, of in self.activity.items() if place[0] == gpu}

    def hands(self, gpu: int) -> object:
        """Who holds a GPU, and what there is of it."""
        held = {place: of for place, of in self.held.items() if place[0] == gpu}
        return held, *({place for place in places if place[0] == gpu} for places in (self.sampled, self.shared))

    def has(self, gpu: int) -> bool:
        """Whether the GPU is on the page."""
        return not self.failed and any(place[0] == gpu for place in self.slices)


@dataclass(eq=False)
class Span:
    """A time of a GPU from a look to the next one at which anything was known of it.

    `run` is one object for the same hands at all looks between. `is_blind`: the page was away at one of its ends.
    """

    gpu: int
    first: Look
    last: Look
    is_gap: bool
    is_blind: bool
    run: object
    kernels: Mapping[Place, Mapping[str, int]]

    @property
    def seconds(self) -> int:
        return self.last.at - self.first.at

    @property
    def is_seen(self) -> bool:
        return not (self.is_gap or self.is_blind)

    @property
    def is_held(self) -> bool:
        return bool(self.all_pods())

    def all_pods(self) -> set[str]:
        return {pod for place in self.first.held if place[0] == self.gpu for pod in self.pods(place)}

    def pods(self, place: Place) -> Sequence[str]:
        """Who held a device; "" for one that held it at one end of a gap only."""
        stays = self.last.held.get(place, {})
        return [pod if not self.is_gap or pod in stays else "" for pod in self.first.held.get(place, {})]


def grown(before: int, now: int) -> tuple[int, int]:
    """By how much a counter grew, and the value that is gone on with."""
    if now >= before:
        return now - before, now
    return (now, now) if 2 * now < before else (0, before)


def is_gap(looks: Sequence[Look], first: int, last: int) -> bool:
    return last != first + 1 or looks[last].at - looks[first].at > 2 * INTERVAL


def seconds(spans: Sequence[Span]) -> int:
    return sum(span.seconds for span in spans)


def divided(parts: Sequence[Fraction], amount: Fraction) -> Sequence[Fraction]:
    return [amount * part / sum(parts) for part in parts]


def by_kernels(known: Sequence[Mapping[str, int]], pods: Sequence[str]) -> Mapping[str, Fraction]:
    """The parts of a device's holders, and of nobody: by the time of their kernels, else equal."""
    times = {pod: sum(each.get(pod, 0) for each in known) for pod in (*pods, "")}
    if not any(times.values()):
        return dict.fromkeys(pods or ("",), Fraction(1, max(1, len(pods))))
    return {pod: Fraction(time, sum(times.values())) for pod, time in times.items()}


def runs(found: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """The spans one after the other, together where the hands are the same; a gap for itself."""
    group: list[Span] = []
    for span in found:
        if group and (
            span.is_gap or group[-1].is_gap or (span.run, span.is_blind) != (group[-1].run, group[-1].is_blind)
        ):
            yield group
            group = []
        group.append(span)
    if group:
        yield group


@dataclass
class Pace:
    """What ran of a pod between two looks, and in the part of a look that it held at first, if a look saw it come."""

    ns: int
    of: int
    first: int | None

    def after_its_last_look(self, step: int) -> int:
        of_step = self.ns * step // self.of
        return of_step // 2 if self.first is None else max(0, of_step - self.first)


@dataclass
class Waiting:
    """What ran on a device by pod, and no page has told yet. Half of what ran before a page is the next page's."""

    before: dict[str, Fraction] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)
    told: frozenset[str] = frozenset()
    is_known: bool = False

    def add(self, ran: Mapping[str, int] | None) -> None:
        self.is_known &= ran is not None
        if ran is not None:
            for pod, ns in self.last.items():
                self.before[pod] = self.before.get(pod, Fraction(0)) + (Fraction(ns, 2) if pod in self.told else ns)
            self.last, self.told = ran, frozenset()

    def take(self) -> Mapping[str, Fraction] | None:
        halves = {pod: Fraction(ns, 2) for pod, ns in self.last.items()}
        of_page, is_known = dict(self.before), self.is_known
        for pod, ns in halves.items():
            of_page[pod] = of_page.get(pod, Fraction(0)) + (0 if pod in self.told else ns)
        self.before, self.last, self.told, self.is_known = halves, {}, frozenset(), True
        return of_page if is_known and any(of_page.values()) else None


class PlainGpu:
    """One GPU, look by look. `rest` is what the GPUs draw at rest, of which each look may learn."""

    def __init__(self, gpu: int, looks: Sequence[Look]) -> None:
        self.gpu, self.looks = gpu, looks
        self.energy: Had = defaultdict(Fraction)
        self.active: Had = defaultdict(Fraction)
        self.idle: Had = defaultdict(Fraction)
        self.unknown: Had = defaultdict(Fraction)
        self.observed: Had = defaultdict(Fraction)
        self.drawn = 0
        self.run: object = object()
        self.step = 0
        self.counted: int | None = None
        # of the page: the last look that had the GPU and the last at which anything was known, who held it for all the
        # time that the page describes, the last span before that, and what the page before left over
        self.shown: Look | None = None
        self.known_at: int | None = None
        self.steady: object = None
        self.before: Span | None = None
        self.carried: dict[Place, Fraction] = {}
        self.window: list[Span] = []
        # of the counter
        self.value = 0
        self.read_at: int | None = None
        self.since: list[Span] = []
        self.runs: dict[int, object] = {}
        self.newest: dict[Place, tuple[int, Mapping[str, Fraction], Mapping[str, int]]] = {}
        self.kernels: dict[int, Mapping[Place, Mapping[str, int]]] = {}
        # since the look before, and since a page
        self.ran: dict[Place, Mapping[str, int]] = {}
        self.paces: dict[tuple[Place, str], Pace] = {}
        self.waiting: dict[str, dict[Place, Waiting]] = {"activity": {}, "energy": {}}

    def look(self, number: int, rest: "Rest") -> None:
        """Count a look that the kubelet answered."""
        now = self.looks[number]
        if self.counted is not None:
            before = self.looks[self.counted]
            self.step = now.at - before.at
            if before.hands(self.gpu) != now.hands(self.gpu):
                self.run = object()
            self.kernels[number] = self.kernels_at(number)
            self.note_ran(before, number)
        self.counted, self.runs[number] = number, self.run
        is_away = now.failed == "page"
        if not is_away and not now.has(self.gpu):
            return
        if self.known_at is not None:
            self.note_away(is_away=is_away)
            self.window.append(self.span(self.known_at, number))
        elif is_away:
            return
        self.known_at = number
        if self.read_at is not None and (is_away or self.gpu in now.counters):
            self.since.append(self.span(self.read_at, number))
            self.read_at = number
        if is_away:
            return
        is_new = False
        if self.shown is not None:
            is_new = self.shown.page(self.gpu) != now.page(self.gpu) or seconds(self.window) >= OLD
            self.count_activity(now, is_new=is_new)
        else:
            self.steady = self.run
            self.taken()
        self.count_energy(number, rest)
        if is_new:
            is_steady = all(span.run is self.run and not span.is_gap for span in self.window)
            is_steady = is_steady and (self.before is None or self.before.run is self.run)
            self.steady, self.before, self.window = self.run if is_steady else None, self.window[-1], []
        self.shown = now

    def span(self, first: int, last: int) -> Span:
        before, now = self.looks[first], self.looks[last]
        gap = is_gap(self.looks, first, last)
        run = self.runs[first]
        left = any(
            pod not in now.held.get(place, {})
            for place in before.held
            if place[0] == self.gpu
            for pod in before.held[place]
        )
        return Span(
            self.gpu,
            before,
            now,
            gap,
            not gap and "page" in (before.failed, now.failed),
            object() if gap and left else run,  # the hands without those who left are no look's
            {} if gap else self.kernels.get(last, {}),
        )

    def kernels_at(self, number: int) -> Mapping[Place, Mapping[str, int]]:
        """For how long kernels of each holder, and of nobody, ran since the look before, by device that is held."""
        assert self.counted is not None
        first, now = self.looks[self.counted], self.looks[number]
        if not first.kernels or not now.kernels:
            self.newest.clear()
        if any(look.is_last_of_process for look in self.looks[self.counted : number]):
            self.newest.clear()
        if is_gap(self.looks, self.counted, number):
            return {}
        found = {}
        for place, pods in first.held.items():
            known = [look.kernels.get(place) for look in (first, now)]
            if place[0] != self.gpu or None in known or not pods.keys() <= known[0].keys() & known[1].keys():  # type: ignore[union-attr]
                continue
            times = {pod: known[1].get(pod, 0) - known[0].get(pod, 0) for pod in (*pods, "")}  # type: ignore[union-attr]
            if min(times.values()) < 0:
                continue
            if any(times.values()):
                self.newest[place], found[place] = (now.at, pods, times), times
                continue
            since, holders, newest = self.newest.get(place, (now.at, {}, times))
            # no new sample is no news
            is_known = holders == pods and now.at - since < OLD and any(newest.values())
            found[place] = {pod: of * 1000 // sum(newest.values()) for pod, of in newest.items()} if is_known else times
        return found

    def note_away(self, *, is_away: bool) -> None:
        """What ran up to a look that has no page belongs to none."""
        for waiting in (*self.waiting["activity"].values(), *self.waiting["energy"].values()):
            waiting.is_known &= not is_away

    def taken(self) -> Mapping[Place, Mapping[str, Fraction] | None]:
        """What ran on each device in the time that a page describes."""
        return {place: waiting.take() for place, waiting in self.waiting["activity"].items()}

    def devices(self, look: Look) -> Sequence[Place]:
        """What there is of the GPU: its instances, or itself."""
        cut = [place for place in {*look.sampled, *look.held} if place[0] == self.gpu and place[1]]
        return cut or [(self.gpu, "")]

    def note_ran(self, first: Look, number: int) -> None:
        """What ran of all who held a device at the look before, or hold it now."""
        assert self.counted is not None
        now = self.looks[number]
        is_new_process = any(look.is_last_of_process for look in self.looks[self.counted : number])
        if is_new_process or not first.kernels or not now.kernels:
            self.ran, self.paces, self.waiting = {}, {}, {"activity": {}, "energy": {}}
            return
        paces, self.paces, self.ran = self.paces, {}, {}
        if not is_gap(self.looks, self.counted, number):
            for place in {*self.devices(first), *self.devices(now)}:
                self.note_ran_of(place, first, now, paces)
        for amount in self.waiting.values():
            for place in {*self.ran, *amount}:
                amount.setdefault(place, Waiting()).add(self.ran.get(place))

    def note_ran_of(self, place: Place, first: Look, now: Look, old: Mapping[tuple[Place, str], Pace]) -> None:
        step = (now.at - first.at) * 10**9
        before, after = first.held.get(place, {}), now.held.get(place, {})
        last, measured = first.kernels.get(place, {}), now.kernels.get(place, {})
        # of processes of nobody it is known in any case
        ran = {"": max(0, measured.get("", 0) - last.get("", 0)) if last and measured else 0}
        paces = {}
        for pod in after:
            if pod not in measured or (pod in before and pod not in last):
                return
            ran[pod] = ns = measured[pod] - last.get(pod, 0)
            if not 0 <= ns <= step:
                return
            of_old = old.get((place, pod))
            paces[place, pod] = (
                Pace(ns, step, of_old.first if of_old else None) if pod in before else Pace(2 * ns, step, ns)
            )
        for pod in before:
            if pod not in after:
                if (place, pod) not in old:
                    return
                ran[pod] = old[place, pod].after_its_last_look(step)
        self.ran[place] = ran
        self.paces |= paces

    def edges(self, window: Sequence[Span], now: Look, *, is_whole: bool = True) -> tuple[Span | None, Span | None]:
        """Who may have held the GPU at the beginning and at the end of a window, though no look in it saw them."""
        left = came = None
        if is_whole and self.before and self.before.run is not window[0].run and "" not in self.before.all_pods():
            left = replace(self.before, is_gap=False, is_blind=False, kernels={})
        if window[-1].run is not self.run:
            came = Span(self.gpu, now, now, False, False, self.run, {})
        return left, came

    def count_activity(self, now: Look, *, is_new: bool) -> None:
        assert self.shown is not None
        last = self.window[-1]
        if last.run is self.steady and last.is_seen:
            self.tell([last], self.shown.activity, told=self.leave_to_page(last, now))
        if not is_new:
            return
        ran = self.taken()
        unseen = [number for number, span in enumerate(self.window, 1) if not span.is_seen]
        described = self.window[max(unseen, default=0) :]
        carried, self.carried = self.carried, {}
        if all(run is self.steady for run in (self.run, *(span.run for span in described))):
            return
        rates: dict[Place, Mapping[int, Fraction]] = {}
        divided = set()
        for place, of in now.activity.items():
            if place[0] != self.gpu or not described:
                continue
            held = [span for span in described if span.first.held.get(place)]
            told = seconds([span for span in held if span.run is self.steady])
            over = [span for span in held if span.run is not self.steady]
            left = carried.get(place, Fraction(0)) + of * seconds(described)
            left -= told * self.shown.activity.get(place, Fraction(0))
            of_all = ran.get(place) if len(described) == len(self.window) else None
            if of_all and place in self.devices(now):
                divided.add(place)
                self.divide(place, left, seconds(over), of_all)
                continue
            if over:
                rates[place] = spread(max(Fraction(0), left), over, place)
            if left > seconds(over):
                self.share_out(place, left - seconds(over), described, now)
        for group in runs([span for span in described if span.run is not self.steady]):
            self.tell(group, now.activity, rates, described, told=divided)

    def divide(self, place: Place, left: Fraction, held: int, ran: Mapping[str, Fraction]) -> None:
        """Divide the active time that is left of a device by what ran on it; `held` are the seconds that it is of."""
        if left < 0:
            self.carried[place] = max(left, Fraction(-self.step))
        active = min(max(Fraction(0), left), Fraction(held + self.step))
        for pod, ns in ran.items():
            self.active[pod, place] += active * ns / sum(ran.values())
            self.observed[pod, place] += 0

    def leave_to_page(self, last: Span, now: Look) -> set[Place]:
        """The devices that a pod has left since the look before: how active they were only the next page tells."""
        assert self.shown is not None
        late = set()
        for place, waiting in self.waiting["activity"].items():
            pods = last.first.held.get(place, {})
            if not pods.keys() <= now.held.get(place, {}).keys() and any(self.ran.get(place, {}).values()):
                late.add(place)
                active = self.shown.activity.get(place, Fraction(0)) * last.seconds
                self.carried[place] = self.carried.get(place, Fraction(0)) + active
            else:
                waiting.before, waiting.told, waiting.is_known = {}, frozenset({*pods, ""}), True
        return late

    def share_out(self, place: Place, amount: Fraction, described: Sequence[Span], now: Look) -> None:
        hands = self.edges(described, now, is_whole=len(described) == len(self.window))
        left, came = (span if span and span.first.held.get(place) else None for span in hands)
        part = min(amount / (bool(left) + bool(came) or 1), Fraction(described[-1].seconds))
        goes_on = not left and described[-1].run is self.run and now.held.get(place)
        if came or goes_on:
            self.carried[place] = part
        if left:
            for pod, known in zip(left.pods(place), left.first.held[place].values(), strict=True):
                if pod:
                    self.active[pod, place] += part * known
                    self.observed[pod, place] += 0

    def tell(
        self,
        group: Sequence[Span],
        activity: Mapping[Place, Fraction],
        rates: Mapping[Place, Mapping[int, Fraction]] = MappingProxyType({}),
        described: Sequence[Span] = (),
        told: AbstractSet[Place] = frozenset(),
    ) -> None:
        """Count a time in the same hands, in which the devices were so active; `described` has several hands.

        Of the devices in `told` all active time is counted, or will be.
        """
        for place, parts in group[0].first.held.items():
            if place not in activity or place[0] != self.gpu:
                continue
            of_page, time = rates.get(place, {}).get(len(parts), activity[place]), seconds(group)
            known = [span.kernels.get(place, {}) for span in group]
            of_pods = by_kernels(known, tuple(parts)) if any(any(each.values()) for each in known) else None
            for pod, part in parts.items():
                active = of_page * (of_pods[pod] if of_pods else part)
                self.active[pod, place] += 0 if place in told else time * active
                self.observed[pod, place] += part * time
                is_idle = self.is_idle(pod, place, group, activity[place], described)
                if of_pods and (is_idle is not None or not described):
                    is_idle = active < IDLE_BELOW
                elif is_idle is None and described:
                    is_idle = self.is_idle_by_nvml(pod, place, group, described)
                self.idle[pod, place] += part * time if is_idle else 0
                self.unknown[pod, place] += part * time if is_idle is None else 0
            if of_pods and place not in told:
                self.active["", place] += time * of_page * of_pods[""]

    def is_idle(
        self, pod: str, place: Place, group: Sequence[Span], activity: Fraction, described: Sequence[Span]
    ) -> bool | None:
        """Whether a pod was idle, if a page that describes all of this has this activity."""
        if not described:
            is_alone = len(group[0].first.held[place]) == 1
            return True if activity < IDLE_BELOW else False if is_alone else None
        active, own = activity * seconds(described), 0
        others = self.step if self.before and set(self.before.pods(place)) - {pod} else 0
        for run in runs(described):
            own += seconds(run) if pod in run[0].first.held.get(place, {}) else 0
            if run[0].first.held.get(place, {}).keys() - {pod}:
                others += seconds(run)
            elif run[-1].last.held.get(place, {}).keys() - {pod}:
                others += min(self.step, seconds(run))
        if active < IDLE_BELOW * own:
            return True
        if not others or active - others >= IDLE_BELOW * own:
            return False
        return None

    def is_idle_by_nvml(self, pod: str, place: Place, group: Sequence[Span], described: Sequence[Span]) -> bool | None:
        known = [span.kernels[place] for span in group if place in span.kernels]
        ran = [sum(times.values()) for span in described for times in (span.kernels.get(place, {}),)]
        of_looks = [sum(times.values()) for times in known if any(times.values())]
        is_proportion = bool(of_looks) and max(of_looks) <= TRACES
        if not known or not any(ran) or is_proportion:
            return None
        return sum(times.get(pod, 0) for times in known) < IDLE_BELOW * seconds(group) * 10**9

    def count_energy(self, number: int, rest: "Rest") -> None:
        now = self.looks[number]
        if self.gpu not in now.counters:
            return
        waiting = self.waiting["energy"].get((self.gpu, ""))
        if self.read_at is None:
            self.read_at, self.value = number, now.counters[self.gpu]
            if waiting:
                waiting.take()
            return
        before = self.value
        amount, self.value = grown(before, now.counters[self.gpu])
        self.drawn += amount
        is_new = self.value != before or seconds(self.since) >= OLD
        ran = waiting.take() if waiting and is_new else None
        if amount:
            self.divide_energy(Fraction(amount), now, rest, ran, is_whole=now.counters[self.gpu] >= before)
        if is_new:
            self.since = []

    def divide_energy(
        self, amount: Fraction, now: Look, rest: "Rest", ran: Mapping[str, Fraction] | None, *, is_whole: bool
    ) -> None:
        groups, time = list(runs(self.since)), seconds(self.since)
        edges = self.edges(self.since, now)
        is_seen = all(span.is_seen for span in self.since)
        ends = [[span] for span in edges if span and span.all_pods()] if is_seen else []
        pieces = [*groups, *ends]
        loads = [
            {place: self.load(place, piece, groups, ends, now) for place in self.places(piece[0].first)}
            for piece in pieces
        ]
        takers = [sum(of.values(), Fraction(0)) for of in loads] if is_seen else [Fraction(0)]
        # an end has no length
        lengths = [*(Fraction(seconds(group)) for group in groups), *(Fraction(0) for _ in ends)]
        is_held = [any(span.is_held for span in piece[:1]) for piece in pieces]
        if not any(takers):
            takers = [length * held for length, held in zip(lengths, is_held, strict=True)]
        if not any(takers):
            takers = [Fraction(held) for held in is_held]
        parts = divided(lengths, amount) if any(lengths) else [*[Fraction(0)] * (len(pieces) - 1), amount]
        least = rest.power()
        is_cut = any(place[1] for look in (now, *(piece[0].first for piece in pieces)) for place in self.devices(look))
        if ran and least is not None and is_seen and len(pieces) > 1 and not is_cut:
            parts = [min(length * least, part) for length, part in zip(lengths, parts, strict=True)]
            for pod, ns in ran.items():
                self.energy[pod, (self.gpu, "")] += (amount - sum(parts)) * ns / sum(ran.values())
        elif len(pieces) > 1 and any(takers) and least is not None:
            free = [min(length * least, part) for length, part in zip(lengths, parts, strict=True)]
            shared = divided(takers, amount - sum(free))
            parts = [one + other for one, other in zip(free, shared, strict=True)]
        for piece, part, of in zip(pieces, parts, loads, strict=True):
            self.give_energy(piece, part, of if piece[0].is_seen else {})
        if not is_whole or not time or self.before is None:
            return
        rest.note(amount / time, is_nobodys=not any(span.is_held for span in self.since) and edges == (None, None))
        places = self.places(now)
        if len(pieces) > 1 and is_seen and places and all(place in now.activity for place in places):
            parts_active = (now.activity[place] * self.slices(place) / self.all_slices(place) for place in places)
            active = sum(parts_active, Fraction(0))
            rest.points.append((Fraction(time), active * time, amount))

    def places(self, now: Look) -> Sequence[Place]:
        """The devices of the GPU that the page has."""
        of_gpu = [place for place in {*now.sampled, *now.held} if place[0] == self.gpu]
        if not any(place[1] for place in of_gpu):
            return [(self.gpu, "")]
        return [place for place in of_gpu if place[1] and place in now.sampled]

    def slices(self, place: Place) -> Fraction:
        return Fraction(place[1][-1:] or 1)

    def all_slices(self, place: Place) -> int:
        return 7 if place[1] else 1

    def load(
        self,
        place: Place,
        piece: Sequence[Span],
        groups: Sequence[Sequence[Span]],
        ends: Sequence[Sequence[Span]],
        now: Look,
    ) -> Fraction:
        """For how long a device was active in a piece, as far as that can be told, times its slices."""
        seen = [group for group in groups if group[0].is_seen]
        active = now.activity.get(place, Fraction(0)) * sum(seconds(group) for group in seen)
        held = [group for group in seen if group[0].first.held.get(place)]
        at_ends = [end for end in ends if end[0].first.held.get(place)]
        pods = len(piece[0].first.held.get(place, {}))
        slices = self.slices(place)
        if not held and not at_ends:
            return slices * now.activity.get(place, Fraction(0)) * (0 if piece in ends else seconds(piece))
        if not pods:
            return Fraction(0)
        if piece in ends:
            return slices * max(Fraction(0), active - sum(seconds(group) for group in held)) / len(at_ends)
        spans = [span for group in held for span in group]
        return slices * spread(active, spans, place).get(pods, Fraction(0)) * seconds(piece)

    def give_energy(self, piece: Sequence[Span], amount: Fraction, loads: Mapping[Place, Fraction]) -> None:
        """Divide energy among the devices of a GPU by their loads, and of each among its holders."""
        span = piece[0]
        of_gpu = [place for place in {*span.first.sampled, *span.first.held} if place[0] == self.gpu]
        places = [place for place in of_gpu if place[1] and place in span.first.sampled]
        if not any(place[1] for place in of_gpu):
            places = [(self.gpu, "")]
        if not places:
            self.energy["", (self.gpu, "")] += amount  # it is cut, and the page does not say how
            return
        by = [loads.get(place, Fraction(0)) for place in places]
        slices = [self.slices(place) for place in places]
        for place, part in zip(places, divided(by if any(by) else slices, amount), strict=True):
            holders = tuple(span.first.held.get(place, {}))
            stays = dict(zip(holders, span.pods(place), strict=True))
            for pod, of_pod in by_kernels([each.kernels.get(place, {}) for each in piece], holders).items():
                self.energy[stays.get(pod, ""), place] += part * of_pod


@dataclass
class Rest:
    """What the GPUs draw at rest: the lowest power of all times, or the line through times (seconds, active, mJ)."""

    lowest: Fraction | None = None
    has_rested: bool = False
    points: list[tuple[Fraction, Fraction, Fraction]] = field(default_factory=list)

    def note(self, power: Fraction, *, is_nobodys: bool) -> None:
        if self.lowest is None or is_nobodys or power < self.lowest:
            self.lowest = power
        self.has_rested |= is_nobodys

    def power(self) -> Fraction | None:
        if self.lowest is None or self.has_rested or len(self.points) < 10:
            return self.lowest
        tt, ta, aa, te, ae, ee = (
            sum((x[one] * x[other] for x in self.points), Fraction(0))
            for one, other in ((0, 0), (0, 1), (1, 1), (0, 2), (1, 2), (2, 2))
        )
        of_all = tt * aa - ta * ta
        if not of_all:
            return self.lowest
        at_rest, slope = (te * aa - ae * ta) / of_all, (ae * tt - te * ta) / of_all
        variance = (ee - at_rest * te - slope * ae) / (len(self.points) - 2) * aa / of_all
        if variance > (te / tt / 10) ** 2:
            return self.lowest
        return min(self.lowest, max(Fraction(0), at_rest))


def spread(active: Fraction, spans: Sequence[Span], place: Place) -> Mapping[int, Fraction]:
    """How active a device was while so many held it, in proportion to their number, for so long in all."""
    held: dict[int, Fraction] = defaultdict(Fraction)
    for span in spans:
        held[len(span.first.held[place])] += span.seconds
    rates: dict[int, Fraction] = {}
    for number in sorted(held, reverse=True):
        weighted = sum(other * held[other] for other in held if other not in rates)
        rates[number] = min(Fraction(1), number * active / weighted) if weighted else Fraction(0)
        if rates[number] < 1:
            return {**rates, **{other: other * active / weighted for other in held if other < number}}
        active -= held[number]
    return rates


def plain(looks: Sequence[Look], gpus: Sequence[int]) -> Sequence[PlainGpu]:
    """The accounts of all GPUs after these looks."""
    found, rest = [PlainGpu(gpu, looks) for gpu in gpus], Rest()
    for number, look in enumerate(looks):
        # the page's GPUs first, then those that are away
        for of in sorted(found, key=lambda of: not look.has(of.gpu)) if look.failed != "kubelet" else ():
            of.look(number, rest)
    return found


def together(amounts: Iterable[Had]) -> Had:
    """Those of all GPUs."""
    return {key: of for each in amounts for key, of in each.items()}


def plain_time(looks: Sequence[Look], gpus: Sequence[int]) -> tuple[Had, int, set[int]]:
    """In seconds: what each pod held of each device, how long all took, and the GPUs that were all held throughout."""
    had: Had = defaultdict(Fraction)
    counted = [number for number, look in enumerate(looks) if look.failed != "kubelet"]
    full = set(gpus)
    for first, last in pairwise(counted):
        for gpu in gpus:
            of_gpu = Fraction(0)
            for place, parts in looks[first].held.items():
                for pod, part in parts.items() if place[0] == gpu else ():
                    if not is_gap(looks, first, last) or pod in looks[last].held.get(place, {}):
                        had[pod, place] += part * (looks[last].at - looks[first].at)
                        of_gpu += part
            if of_gpu < 1:
                full.discard(gpu)
    return had, looks[counted[-1]].at - looks[counted[0]].at if counted else 0, full
