"""An account of a node that is kept plainly, in fractions, to hold the ledger against.

It knows nothing of how the ledger works: it has every look, and reckons from the start each time.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

INTERVAL, OLD = 10, 120  # seconds
IDLE_BELOW = Fraction(1, 20)

Place = tuple[int, str]  # GPU and GPU_I_ID
Had = dict[tuple[str, Place], Fraction]  # by pod ("" for nobody) and device


@dataclass
class Look:
    """What a look saw. `held` is by device and pod as a part of the GPU; `counters` are in mJ, by GPU.

    `slices` and `activity` are of the devices on the page. `shared` are the devices that are handed out in shares, and
    `kernels` for how long kernels ran, by device and pod ("" for nobody's).
    """

    at: int
    failed: str
    counters: Mapping[int, int]
    held: Mapping[Place, Mapping[str, Fraction]]
    slices: Mapping[Place, int]
    activity: Mapping[Place, Fraction]
    shared: frozenset[Place]
    kernels: Mapping[Place, Mapping[str, int]]

    def page(self, gpu: int) -> object:
        """What the page says of a GPU."""
        return self.counters.get(gpu), {place: of for place, of in self.activity.items() if place[0] == gpu}

    def hands(self, gpu: int) -> object:
        """Who holds a GPU, and what there is of it."""
        held, slices = ({place: of for place, of in by.items() if place[0] == gpu} for by in (self.held, self.slices))
        return held, slices, {place for place in self.shared if place[0] == gpu}

    def has(self, gpu: int) -> bool:
        """Whether the GPU is on the page."""
        return not self.failed and any(place[0] == gpu for place in self.slices)


@dataclass
class Span:
    """The time from a look to the next one that saw the GPU; `page` is the look whose page tells of it, if any does.

    `run` is another number for other hands, and `told` the number of those that the page tells of.
    """

    first: Look
    last: Look
    is_gap: bool
    run: int
    told: int | None
    page: Look | None = None

    @property
    def seconds(self) -> int:
        return self.last.at - self.first.at

    def kernels(self, place: Place) -> Mapping[str, int]:
        """For how long kernels of each holder, and of nobody, ran; {} where that is not known of one of them."""
        pods = self.first.held.get(place, {})
        before, after = (look.kernels.get(place) for look in (self.first, self.last))
        if self.is_gap or before is None or after is None or place not in self.first.shared:
            return {}
        if not pods.keys() <= before.keys() & after.keys():
            return {}
        times = {pod: after.get(pod, 0) - before.get(pod, 0) for pod in (*pods, "")}
        return times if min(times.values()) >= 0 else {}


def grown(before: int, now: int) -> tuple[int, int]:
    """By how much a counter grew, and the value that is gone on with."""
    if now >= before:
        return now - before, now
    return (now, now) if 2 * now < before else (0, before)


def is_gap(looks: Sequence[Look], first: int, last: int) -> bool:
    return last != first + 1 or looks[last].at - looks[first].at > 2 * INTERVAL


def spans(looks: Sequence[Look], gpu: int, numbers: Sequence[int]) -> list[Span]:
    """The times between these looks at a GPU, each with the page that tells of it.

    That is the page of its first look, where nobody else has held the GPU since the look before the page was read.
    Otherwise it is the next page.
    """
    found: list[Span] = []
    counted = [number for number, look in enumerate(looks) if not look.failed]
    same = {
        now: looks[before].has(gpu) and looks[now].has(gpu) and looks[before].hands(gpu) == looks[now].hands(gpu)
        for before, now in pairwise(counted)
    }
    run_of = {number: sum(not same.get(each, True) for each in counted if each <= number) for number in counted}
    told = run_of[numbers[0]] if numbers else None
    stood, waiting = 0, list[Span]()
    for first, last in pairwise(numbers):
        span = Span(looks[first], looks[last], is_gap(looks, first, last), run_of[first], told)
        stood += span.seconds
        if not span.is_gap and span.run == told:
            span.page = span.first
        elif not span.is_gap:
            waiting.append(span)
        found.append(span)
        if looks[last].page(gpu) != looks[first].page(gpu) or stood >= OLD:
            for each in waiting:
                each.page = looks[last]
            stood, waiting, told = 0, [], run_of[last] if same[last] else None
    return found


def divided(parts: Sequence[Fraction], amount: Fraction) -> Sequence[Fraction]:
    return [amount * part / sum(parts) for part in parts]


def by_kernels(known: Sequence[Mapping[str, int]], pods: Sequence[str]) -> Mapping[str, Fraction]:
    """The parts of a shared device's holders, and of nobody: by the time of their kernels, else equal."""
    times = {pod: sum(each.get(pod, 0) for each in known) for pod in (*pods, "")}
    if not any(times.values()):
        return dict.fromkeys(pods or ("",), Fraction(1, max(1, len(pods))))
    return {pod: Fraction(time, sum(times.values())) for pod, time in times.items()}


def runs(found: Sequence[Span]) -> Iterator[Sequence[Span]]:
    """The spans one after the other, together where the hands are the same; a gap for itself."""
    group: list[Span] = []
    for span in found:
        if group and (span.is_gap or group[-1].is_gap or span.run != group[-1].run):
            yield group
            group = []
        group.append(span)
    if group:
        yield group


def plain_energy(looks: Sequence[Look], gpus: Sequence[int]) -> tuple[Had, int]:
    """In mJ: what each pod ("" for nobody) had of each device, and what the counters grew by in all."""
    had: Had = defaultdict(Fraction)
    total = 0
    for gpu in gpus:
        seen = [number for number, look in enumerate(looks) if look.has(gpu)]
        pages = {id(span.last): span for span in spans(looks, gpu, seen)}
        read = [number for number in seen if gpu in looks[number].counters]
        value = looks[read[0]].counters[gpu] if read else 0
        since: list[Span] = []
        for span in spans(looks, gpu, read):
            since.append(span)
            before = value
            amount, value = grown(value, span.last.counters[gpu])
            total += amount
            groups = list(runs(since))
            by_time = divided([Fraction(sum(each.seconds for each in group)) for group in groups], Fraction(amount))
            for group, part in zip(groups, by_time, strict=True):
                shown = pages[id(span.last)]
                page = shown.first if group[0].run == shown.told else shown.last
                give_energy(had, gpu, group, page, part)
            if value != before or sum(each.seconds for each in since) >= OLD:
                since = []
    return had, total


def give_energy(had: Had, gpu: int, group: Sequence[Span], page: Look, amount: Fraction) -> None:
    """Divide energy among the devices of a GPU by what a page says, and of each among its holders."""
    first, last, gap = group[0].first, group[-1].last, group[0].is_gap
    places = [place for place in first.slices if place[0] == gpu]
    active = [Fraction(0) if gap else page.activity.get(place, Fraction(0)) for place in places]
    by = [first.slices[place] * of for place, of in zip(places, active, strict=True)]
    if not any(by):
        by = [Fraction(first.slices[place]) for place in places]
    for place, part in zip(places, divided(by, amount), strict=True):
        pods = tuple(first.held.get(place, {}))
        for pod, of_pod in by_kernels([span.kernels(place) for span in group], pods).items():
            stays = not gap or pod in last.held.get(place, {})
            had[pod if stays else "", place] += part * of_pod


def plain_activity(looks: Sequence[Look], gpus: Sequence[int]) -> tuple[Had, Had]:
    """In seconds: for how long each pod used each device that it held, and for how long it did not."""
    active: Had = defaultdict(Fraction)
    idle: Had = defaultdict(Fraction)
    for gpu in gpus:
        found = spans(looks, gpu, [number for number, look in enumerate(looks) if look.has(gpu)])
        # those that wait for one page are counted as one, where the hands are the same
        at_once = [[span] for span in found if span.page is span.first]
        later = [
            [span for span in group if span.page is page]
            for group in runs([span for span in found if span.page is not span.first])
            for page in {id(span.page): span.page for span in group}.values()
        ]
        for group in (*at_once, *later):
            page = group[0].page
            for place, parts in group[0].first.held.items():
                if page is None or place not in page.activity or place[0] != gpu:
                    continue
                seconds, of_page = sum(span.seconds for span in group), page.activity[place]
                known = [span.kernels(place) for span in group]
                if not any(any(each.values()) for each in known):
                    for pod, part in parts.items():
                        active[pod, place] += part * seconds * of_page
                        idle[pod, place] += part * seconds if of_page < IDLE_BELOW else 0
                    continue
                for pod, of_pod in by_kernels(known, tuple(parts)).items():
                    active[pod, place] += seconds * of_page * of_pod
                    if pod:
                        idle[pod, place] += parts[pod] * seconds if of_page * of_pod < IDLE_BELOW else 0
    return active, idle


def plain_time(looks: Sequence[Look], gpus: Sequence[int]) -> tuple[Had, int, set[int]]:
    """In seconds: what each pod held of each device, how long all took, and the GPUs that were all held throughout."""
    had: Had = defaultdict(Fraction)
    counted = [number for number, look in enumerate(looks) if not look.failed]
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
