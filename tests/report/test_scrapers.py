"""One exporter that several scrape: two jobs, or an HA pair in one store. The bill is that of one of them."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporter.report.growth import ScrapedCounter
from exporter.report.rows import gaps_of, target_of
from exporter.report.span import Span
from tests.report.test_growth import Row, held, read, row

SCRAPE = 15.0
START = 10 * 86_400
LATEST, CLOCKS_APART = 5.0, 5.0


@dataclass(frozen=True)
class Restart:
    """The exporter ends at a moment and answers again later: as another target, and with its state, or from 0 on."""

    at: float
    back: float
    is_kept: bool
    moves: bool


@dataclass(frozen=True)
class Scraper:
    """What a job or a server does: when it asks, how far its clock is ahead, how late answers are, and when it is away.

    `late` are seconds by the number of the scrape.
    """

    every: float = SCRAPE
    first: float = 0.0
    ahead: float = 0.0
    late: Mapping[int, float] = field(default_factory=dict)
    away: tuple[float, float] = (math.inf, math.inf)


class Sample(NamedTuple):
    """`at` is when the scrape began, by the scraper's clock; `epoch` counts how often the counter began at 0."""

    epoch: int
    address: int
    at: float
    value: float


def answer_at(at: float, restarts: Sequence[Restart]) -> tuple[int, int, float] | None:
    """The counter of a pod that holds a GPU all the time: its epoch, its address, its value. None: nobody answers."""
    epoch, address, begins = 0, 0, START - 1000.0
    for restart in restarts:
        if restart.at <= at < restart.back:
            return None
        if restart.back <= at:
            address += restart.moves
            if not restart.is_kept:
                epoch, begins = epoch + 1, restart.back
    return epoch, address, at - begins


def scraped(scraper: Scraper, restarts: Sequence[Restart], seconds: float) -> Iterator[Sample]:
    """What the scraper stores from 4 minutes before the span on."""
    for number in range(int((seconds + 240 - scraper.first) // scraper.every)):
        begins = START - 240 + scraper.first + number * scraper.every
        answer = answer_at(begins + scraper.late.get(number, 0.0), restarts)
        if answer and not scraper.away[0] <= begins < scraper.away[1]:
            epoch, address, value = answer
            yield Sample(epoch, address, round(begins + scraper.ahead, 3), value)


def billed(each: Sequence[Scraper], restarts: Sequence[Restart], seconds: int) -> float:
    """GPU-seconds, by a report on `seconds`."""
    series: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for number, scraper in enumerate(each):
        for sample in scraped(scraper, restarts, seconds):
            series[number, sample.address].append((sample.at, sample.value))
    rows: list[Row] = [
        row("p", sorted(points), target=f"n:{address}", job="gpu", replica=str(number))
        for (number, address), points in series.items()
    ]
    growth, _ = read(rows, Span(START * 1000, (START + seconds) * 1000))
    return held(growth).get("p", 0.0)


# issue 15, line 1
@pytest.mark.parametrize(("apart", "ahead"), [(0.3, 0.0), (14.3, 2.0)], ids=["clocks alike", "clocks 2 s apart"])
def test_two_jobs_with_late_answers_bill_what_one_job_bills(apart: float, ahead: float) -> None:
    """40 hours of one GPU. Two of 9,600 answers come half a second late, and the exporter is rolled, with its state."""
    hours = 40 * 3600
    first = Scraper(late={8330: 0.5, 8360: 0.5})
    second = Scraper(first=apart, ahead=ahead)
    rolled = [Restart(at=START + 124_800, back=START + 124_805, is_kept=True, moves=True)]
    assert billed([first, second], rolled, hours) == pytest.approx(hours, abs=SCRAPE)


SPAN_SECONDS = 3 * 3600
LEAST_APART = 300  # seconds between restarts


@st.composite
def scrapers(draw: st.DrawFn, away: tuple[float, float]) -> Scraper:
    """It asks every 10 to 60 s, and some of its answers are late."""
    every = float(draw(st.sampled_from((10, 15, 30, 60))))
    scrapes = int(SPAN_SECONDS // every)
    late = st.dictionaries(st.integers(0, scrapes), st.floats(0, LATEST), max_size=40)
    return Scraper(
        every=every,
        first=draw(st.floats(0, every)),
        ahead=draw(st.floats(0, CLOCKS_APART)),
        late=draw(late),
        away=away,
    )


@st.composite
def several(draw: st.DrawFn) -> Sequence[Scraper]:
    """Up to four. Each may be away for a while, while another one is there: else nobody could know of a restart."""
    count = draw(st.integers(1, 4))
    share = SPAN_SECONDS / count
    made = []
    for number in range(count):
        begins = START + number * share
        away = (
            (begins, begins + draw(st.floats(0, share - 300))) if count > 1 and draw(st.booleans()) else (math.inf,) * 2
        )
        made.append(draw(scrapers(away)))
    return made


@st.composite
def restarts(draw: st.DrawFn) -> Sequence[Restart]:
    at, made = float(START), []
    for apart, down, is_kept, moves in draw(
        st.lists(
            st.tuples(
                st.floats(LEAST_APART, 7200), st.sampled_from((0.0, 1.0, 5.0, 40.0)), st.booleans(), st.booleans()
            ),
            max_size=4,
        )
    ):
        at += apart
        made.append(Restart(at, at + down, is_kept, moves))
        at += down
    return made


def truly(each: Sequence[Scraper], restarts: Sequence[Restart], seconds: int) -> float:
    """What the counter grew in the span, as far as anybody saw it: in each epoch up to the highest value."""
    before: dict[int, float] = defaultdict(float)
    highest: dict[int, float] = defaultdict(float)
    for sample in (sample for scraper in each for sample in scraped(scraper, restarts, seconds)):
        if sample.at <= START + seconds:
            values = before if sample.at <= START else highest
            values[sample.epoch] = max(sample.value, values[sample.epoch])
    return sum(max(0.0, value - before[epoch]) for epoch, value in highest.items())


# issue 15, line 1
@pytest.mark.parametrize("is_kept", [True, False], ids=["with its state", "from 0 on"])
@pytest.mark.parametrize("moves", [True, False], ids=["elsewhere", "at the same address"])
@pytest.mark.parametrize("ahead", [0.0, 2.0, CLOCKS_APART])
def test_a_quick_restart_counts_once_whoever_sees_it_first(is_kept: bool, moves: bool, ahead: float) -> None:
    seconds = 600
    for twice in (1, 2):
        restarts = [Restart(at, at + 1, is_kept, moves) for at in (START + 303.0, START + 318.0)[:twice]]
        for apart in range(15):
            late = {(300 + 240) // 15: 4.0}
            each = [Scraper(late=late), Scraper(first=apart + 0.5, ahead=ahead, late=late)]
            bill = billed(each, restarts, seconds)
            assert bill == pytest.approx(truly(each, restarts, seconds), abs=SCRAPE), (apart, twice)


# issue 15, line 1, and "Must show" 2
@pytest.mark.history
@settings(max_examples=50, deadline=None)
@given(several(), restarts())
def test_any_scrapers_bill_what_the_counter_grew_to_one_scrape(
    each: Sequence[Scraper], restarts: Sequence[Restart]
) -> None:
    assert billed(each, restarts, SPAN_SECONDS) == pytest.approx(
        truly(each, restarts, SPAN_SECONDS), abs=max(scraper.every for scraper in each)
    )


# issue 15, line 1
@pytest.mark.parametrize(
    ("samples", "grown", "begun"),
    [
        (
            [(0, "a", 1010), (30, "a", 3), (34, "b", 1012), (36, "c", 1013), (60, "a", 33), (64, "b", 37)],
            10 + 3 + 2 + 1 + 30 + 4,
            [30],
        ),
        (
            [(0, "a", 1010), (1, "b", 1005), (30, "a", 3), (40, "a", 1), (42, "b", 1012), (70, "a", 31), (72, "b", 33)],
            10 + 3 + 1 + 30 + 2,
            [30, 40],
        ),
    ],
    ids=["two that are new, of before a restart", "one that is two restarts behind"],
)
def test_a_late_answer_of_before_a_restart_is_not_counted_after_it(
    samples: Sequence[tuple[float, str, float]], grown: float, begun: Sequence[float]
) -> None:
    assert ScrapedCounter("a", 1000).follow(samples, since=-60) == (grown, begun)


# issue 22, line 28
def test_a_gap_that_two_jobs_tell_is_one_gap() -> None:
    seen = {("job=a", "page"): 125.0, ("job=b", "page"): 130.0, ("job=c", "page"): 40.0, ("job=a", "kubelet"): 5.0}
    assert gaps_of(seen, {"n": {"job=a", "job=b"}, "m": {"job=c"}}) == {"page": 170.0, "kubelet": 5.0}
    assert gaps_of({("job=a", "page"): 7.0}, {}) == {"page": 7.0}


@pytest.mark.parametrize("label", ["queue", "workload_name", "label_team", "pod_uid"])
def test_a_label_of_a_pod_makes_no_other_target(label: str) -> None:
    """Else a row whose pod got its queue later would count as another server's."""
    labels = {"job": "gpu", "instance": "n:1", "namespace": "a", "pod": "p", "UUID": "G"}
    assert target_of({**labels, label: "x"}) == target_of(labels)
    assert target_of({**labels, "replica": "x"}) != target_of(labels)
