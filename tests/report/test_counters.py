"""One counter as scrapers show it, sample by sample, and the moments at which a node's exporter began anew."""

from collections.abc import Sequence

import pytest

from exporter.report.growth import EndValues, FamilyPiece, Growth, ScrapedCounter
from exporter.report.restarts import Begin, restarts_in
from exporter.report.rows import FAMILIES, Amounts, CountedSeries, RowKey, is_renamed, series_of, target_of

Sample = tuple[float, str, float]


def followed(*samples: Sample, high: float = 1000.0, since: float = -60.0) -> tuple[float, Sequence[float]]:
    return ScrapedCounter("a", high).follow(samples, since)


@pytest.mark.parametrize(
    ("samples", "grown", "begun"),
    [
        ([(0, "a", 1010.0), (15, "a", 1025.0)], 25, []),
        ([(0, "a", 1000.0)], 0, []),
        ([(0, "a", 1010.0), (30, "a", 5.0), (40, "a", 15.0)], 10 + 5 + 10, [30]),
        # it began at 0 since the last sample
        ([(0, "a", 7.0)], 7, [0]),
        # another target that is a little behind is no restart, nor is one that is ahead counted twice
        ([(0, "a", 1015.0), (5, "b", 1010.0), (10, "b", 1020.0), (15, "a", 1020.0)], 20, []),
        # a new target that shows less than was seen 15 s ago has begun anew
        ([(0, "a", 1015.0), (15, "b", 1014.0)], 15 + 1014, [15]),
        ([(0, "a", 1015.0), (14.9, "b", 1014.0)], 15, []),
        ([(0, "a", 1015.0), (15, "b", 1015.0)], 15, []),
        # a target that has not fallen yet shows the epoch before, for less than 15 s
        ([(0, "a", 1010.0), (1, "b", 1011.0), (30, "a", 5.0), (44.9, "b", 1041.0)], 11 + 5 + 30, [30]),
        ([(0, "a", 1010.0), (1, "b", 1011.0), (30, "a", 5.0), (45, "b", 1041.0)], 11 + 5 + 1036, [30]),
        # it shows it lower than another target did, which adds nothing
        ([(0, "a", 1010.0), (1, "b", 1005.0), (30, "a", 5.0), (35, "b", 1009.0)], 10 + 5, [30]),
        # then it falls, too: to the same epoch
        (
            [(0, "a", 1010.0), (1, "b", 1011.0), (30, "a", 5.0), (31, "b", 1012.0), (46, "b", 20.0)],
            11 + 5 + 1 + 15,
            [30],
        ),
    ],
)
def test_a_counter_grows_by_what_its_targets_show(
    samples: Sequence[Sample], grown: float, begun: Sequence[float]
) -> None:
    grew, moments = followed(*samples)
    assert grew == pytest.approx(grown)
    assert moments == begun


def test_what_was_seen_before_the_piece_is_settled_after_a_while() -> None:
    assert followed((0.0, "b", 999.0), since=-15.0) == (999.0, [0.0])
    assert followed((0.0, "b", 999.0), since=-14.0) == (0.0, [])
    # a target's own last value is settled at once
    assert followed((0.0, "a", 999.0), since=-1.0) == (999.0, [0.0])


def test_a_new_target_shows_the_epoch_whose_highest_value_is_nearer() -> None:
    begun = [(0.0, "a", 1000.0), (30.0, "a", 10.0)]
    assert followed(*begun, (31.0, "b", 1001.0)) == (10 + 1, [30.0])
    assert followed(*begun, (31.0, "b", 11.0)) == (10 + 1, [30.0])
    assert followed(*begun, (31.0, "b", 505.0)) == (10 + 495, [30.0])  # as near to both
    assert followed(*begun, (31.0, "b", 506.0)) == (10.0, [30.0])


def test_a_counter_without_a_target_begins_at_0() -> None:
    counter = ScrapedCounter()
    assert counter.follow([(0.0, "a", 5.0)], since=-60.0) == (5.0, [])
    assert counter.high == 5.0


def ends(first: float, last: float) -> EndValues:
    return EndValues([first], [last])


def test_the_ends_of_a_piece_show_what_grew_if_nothing_fell() -> None:
    counter = ScrapedCounter("a", 10.0)
    assert counter.is_clear({"a": ends(10.0, 10.0)})
    assert counter.is_clear({"a": ends(11.0, 20.0)})
    assert not counter.is_clear({"a": ends(9.0, 20.0)})
    assert not counter.is_clear({"a": ends(11.0, 9.0)})
    assert not counter.is_clear({"b": ends(9.0, 20.0)})
    assert counter.count({"a": ends(11.0, 20.0), "b": ends(12.0, 25.0)}) == 15.0
    assert (counter.high, counter.count({"a": ends(21.0, 26.0)})) == (25.0, 1.0)
    # each target is held to its own last value
    assert counter.has_begun_anew("b", ends(24.0, 30.0))
    assert not counter.has_begun_anew("b", ends(25.0, 30.0))
    assert counter.has_begun_anew("a", ends(25.5, 30.0))


def test_a_target_that_joins_shows_its_value_without_growth() -> None:
    counter = ScrapedCounter("a", 10.0)
    counter.join("b", 8.0)
    assert counter.high == 10.0
    assert not counter.has_begun_anew("b", ends(8.0, 9.0))
    # what is below the highest value is not clear
    assert not counter.is_clear({"b": ends(8.0, 9.0)})
    assert not counter.is_clear({"a": ends(10.0, 11.0), "b": ends(8.0, 9.0)})
    counter.join("c", 12.0)
    assert counter.high == 12.0


def test_series_overlap_unless_one_follows_the_other() -> None:
    assert not EndValues([1.0, 5.0], [5.0, 9.0]).overlap
    assert EndValues([1.0, 4.0], [5.0, 9.0]).overlap
    assert (EndValues([1.0, 4.0], [5.0, 9.0]).low, EndValues([1.0, 4.0], [5.0, 9.0]).high) == (1.0, 9.0)
    assert EndValues([7.0], [3.0]).low == 3.0


def key(pod: str, node: str = "n", namespace: str = "a") -> RowKey:
    return RowKey(namespace, pod, "c", f"GPU-{pod}", "", node)


def rows(*rows_of_family: dict[RowKey, Sequence[Sample]]) -> Sequence[dict[RowKey, Sequence[Sample]]]:
    return [*rows_of_family, *({} for _ in range(len(FAMILIES) - len(rows_of_family)))]


def test_nobodys_row_that_begins_anew_is_a_restart() -> None:
    assert restarts_in([Begin(100.0, key(""))], rows()) == [100.0]
    assert restarts_in([Begin(100.0, key("p"))], rows()) == []


def test_two_pods_that_begin_anew_within_a_minute_are_a_restart() -> None:
    assert restarts_in([Begin(160.0, key("q")), Begin(100.0, key("p"))], rows()) == [100.0]
    assert restarts_in([Begin(160.1, key("q")), Begin(100.0, key("p"))], rows()) == []
    # two devices of one pod are one pod
    assert restarts_in([Begin(100.0, key("p")), Begin(100.0, key("p")._replace(uuid="other"))], rows()) == []
    assert restarts_in([Begin(100.0, key("p")), Begin(100.0, key("p", namespace="b"))], rows()) == [100.0]


def test_restarts_a_minute_apart_are_one() -> None:
    begins = [Begin(at, key("")) for at in (100.0, 160.0, 160.1, 220.1, 221.0)]
    assert restarts_in(begins, rows()) == [100.0, 160.1, 221.0]


TWO = [Begin(100.0, key("p")), Begin(100.0, key("q"))]


@pytest.mark.parametrize(
    ("family", "after", "goes_on"),
    [
        (0, (115.0, "t", 30.0), False),  # a row that began at 0 right after the sample before may have as much
        (0, (115.0, "t", 30.1), True),
        (0, (100.0, "t", 15.1), True),
        (1, (115.0, "t", 30.1), True),
        (2, (115.0, "t", 30.1), True),
        (3, (115.0, "t", 90_000.0), False),
        (3, (115.0, "t", 90_000.1), True),
        (4, (115.0, "t", 30.1), True),
        (5, (115.0, "t", 30.1), True),
    ],
)
def test_a_row_that_goes_on_counting_tells_that_it_was_no_restart(family: int, after: Sample, goes_on: bool) -> None:
    families: list[dict[RowKey, Sequence[Sample]]] = [{} for _ in FAMILIES]
    families[family] = {key("r"): [(70.0, "t", 1.0), (85.0, "t", 1.0), after, (500.0, "t", 1e9)]}
    assert restarts_in(TWO, families) == ([] if goes_on else [100.0])


def test_a_row_without_a_sample_on_both_sides_tells_nothing() -> None:
    for samples in ([(85.0, "t", 1e9)], [(115.0, "t", 1e9)]):
        assert restarts_in(TWO, rows({key("r"): samples})) == [100.0]
    # nor does one that itself began anew
    assert restarts_in(TWO, rows({key("p"): [(85.0, "t", 1e9), (115.0, "t", 1e9)]})) == [100.0]


def series(pod: str, *points: tuple[float, float], target: str = "t", **labels: str) -> CountedSeries:
    return CountedSeries(key(pod), target, labels, points)


def of_first(*counted: CountedSeries) -> Sequence[Sequence[CountedSeries]]:
    return [counted, *(() for _ in FAMILIES[1:])]


def test_restarts_of_two_pieces_a_minute_apart_are_one_restart() -> None:
    growth = Growth()
    growth.begin(of_first(series("", (0.0, 500.0))))
    for begins in (100.0, 160.0, 220.1):
        growth.replay(of_first(series("", (begins - 1, 900.0), (begins, 1.0))), begins - 30)
    assert growth.restarts == {"n": 2}


def test_a_single_0_is_no_scrape_of_a_node() -> None:
    for points, is_target in (([(0.0, 0.0)], False), ([(0.0, 0.0), (1.0, 0.0)], True), ([(0.0, 1.0)], True)):
        growth = Growth()
        growth.begin(of_first(series("p", *points)))
        assert (growth.targets == {"n": {"t"}}) is is_target
    growth = Growth()
    growth.begin(of_first(series("p", (0.0, 0.0))), [series("p", (0.0, 8.0))])
    assert growth.targets == {"n": {"t"}}


def piece(
    first: Sequence[CountedSeries], last: Sequence[CountedSeries], fell: Sequence[CountedSeries] = ()
) -> Sequence[FamilyPiece]:
    empty = FamilyPiece(first=(), last=(), fell=())
    return [FamilyPiece(first=first, last=last, fell=fell), *(empty for _ in FAMILIES[1:])]


def test_a_node_whose_rows_are_clear_is_counted_by_its_ends() -> None:
    growth = Growth()
    growth.begin(of_first(series("p", (0.0, 5.0))))
    grown = piece(
        [series("p", (1.0, 6.0)), series("q", (1.0, 2.0))],
        [series("p", (9.0, 9.0)), series("q", (9.0, 7.0), queue="x")],
    )
    assert growth.count(grown) == set()
    assert growth.grown == {key("p"): Amounts(held=4.0), key("q"): Amounts(held=7.0)}
    assert growth.labels == {key("q"): {"queue": "x"}}
    assert (growth.rows, growth.take_lately().held, growth.take_lately().held) == (2, 11.0, 0.0)


def test_series_of_one_row_follow_each_other_in_whatever_order_they_come() -> None:
    growth = Growth()
    growth.begin(of_first(series("p", (0.0, 5.0))))
    first, last = ([series("q", (1.0, value)) for value in values] for values in ((5.0, 1.0), (9.0, 5.0)))
    assert growth.count(piece(first, last)) == set()
    assert growth.grown == {key("q"): Amounts(held=9.0)}


def test_a_node_whose_rows_are_not_clear_is_left_out_whole() -> None:
    clear = series("p", (9.0, 9.0))
    for unclear in (
        piece([], [clear], [series("q", (9.0, 1.0))]),
        piece([], [clear, series("q", (9.0, 1.0), target="new")]),
        piece([], [clear, series("p", (9.0, 3.0))], []),
        piece(
            [series("q", (1.0, 1.0)), series("q", (1.0, 3.0))],
            [clear, series("q", (9.0, 4.0)), series("q", (9.0, 8.0))],
        ),
    ):
        growth = Growth()
        growth.begin(of_first(series("p", (0.0, 5.0))))
        growth.begin(of_first(CountedSeries(key("r", "m"), "t", {}, ((0.0, 1.0),))))
        first = unclear[0]
        other = CountedSeries(key("r", "m"), "t", {}, ((9.0, 4.0),))
        assert growth.count(
            [FamilyPiece(first=first.first, last=(*first.last, other), fell=first.fell), *unclear[1:]]
        ) == {"n"}
        assert growth.grown == {key("r", "m"): Amounts(held=3.0)}


def test_of_a_targets_samples_of_one_moment_the_highest_counts() -> None:
    for values in ((5.0, 7.0), (7.0, 5.0)):
        growth = Growth()
        growth.begin(of_first(series("x", (0.0, 1.0))))
        growth.replay(of_first(*(series("p", (5.0, value)) for value in values)), 0.0)
        assert growth.grown == {key("p"): Amounts(held=7.0)}


def test_labels_that_prometheus_renamed_count_as_the_rows_own() -> None:
    labels = {
        "exported_pod": "p",
        "pod": "exporter-x",
        "exported_namespace": "",
        "namespace": "monitoring",
        "node": "n",
    }
    assert (is_renamed(labels), is_renamed({"pod": "p"})) == (True, False)
    made = series_of({**labels, "queue": "q", "other": "o"}, ((0.0, 1.0), (1.0, 2.0)), frozenset({"queue", "team"}))
    assert made.key == RowKey("monitoring", "p", "", "", "", "n", "")
    assert (made.labels, made.value) == ({"queue": "q"}, 2.0)
    assert series_of({"cluster": "x", "node": "n"}, ((0.0, 1.0),), frozenset()).key.place == "x/n"


def test_a_target_is_named_by_its_labels_in_order() -> None:
    assert (
        target_of({"replica": "1", "job": "gpu", "exported_pod": "p", "label_a": "x", "__name__": "f"})
        == "job=gpu,replica=1"
    )
