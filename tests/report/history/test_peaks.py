"""The peaks of rows, as a server answers that has them by the query."""

import re
from collections.abc import Mapping, Sequence

import pytest

from exporter.report.advice import Evidence, RowPeaks
from exporter.report.history.peaks import PeaksReader
from exporter.report.history.prometheus_api import AnsweredSeries, RangeAnswer, TooMuch
from exporter.report.span import Span

HOUR = 3_600_000
PIECE = Span(0, 2 * HOUR)
LABELS = {"namespace": "a", "pod": "p", "container": "c", "UUID": "GPU-1", "GPU_I_ID": "", "node": "n"}
ROW = ("a", "p", "c", "GPU-1", "")
USED, ACTIVE = "pod_gpu_memory_used_bytes", "pod_gpu_utilization_ratio"
Series = tuple[Mapping[str, str], float]


class Server:
    """What it answers to the first query of which a text is the beginning; to any other query nothing."""

    def __init__(self, answers: Mapping[str, Sequence[Series]], most_ms: int = 10**9) -> None:
        self.answers = answers
        self.most_ms = most_ms
        self.asked: list[tuple[str, int]] = []

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        self.asked.append((expression, at_ms))
        if max(map(int, re.findall(r"\[(\d+)ms", expression))) > self.most_ms:
            raise TooMuch("too many samples")
        rows = next((rows for begin, rows in self.answers.items() if expression.startswith(begin)), ())
        return RangeAnswer(series=[AnsweredSeries(labels, ((at_ms / 1000, value),)) for labels, value in rows])


async def read(server: Server, *pieces: Span, cluster_label: str = "cluster") -> Mapping[tuple[str, ...], RowPeaks]:
    reader = PeaksReader(server, ['job="gpu"'], cluster_label)
    for piece in pieces or (PIECE,):
        await reader.read(piece)
    return reader.rows


async def test_a_peak_has_the_query_that_gives_it_again() -> None:
    answers = {f"max_over_time({USED}": [(LABELS, 7.0)], f"quantile_over_time(0.95, {ACTIVE}": [(LABELS, 0.5)]}
    server = Server(answers)
    rows = await read(server)
    named = 'GPU_I_ID="", UUID="GPU-1", container="c", namespace="a", node="n", pod="p"'
    assert rows[ROW].evidence == {
        ("max", USED): Evidence(7.0, f"max_over_time({USED}{{{named}}}[7200000ms])", 2 * HOUR),
        ("p95", ACTIVE): Evidence(0.5, f"quantile_over_time(0.95, {ACTIVE}{{{named}}}[7200000ms])", 2 * HOUR),
    }
    asked = f'max_over_time({USED}{{job="gpu", pod!="", holds!="false"}}[7200000ms])'
    assert (asked, 2 * HOUR) in server.asked


async def test_the_highest_peak_of_all_pieces_stays_the_first_of_equals() -> None:
    server = Server({f"max_over_time({USED}": [(LABELS, 7.0)]})
    first, second, third = (Span(hour * HOUR, (hour + 1) * HOUR) for hour in range(3))
    reader = PeaksReader(server, [], "cluster")
    for piece, value in ((first, 7.0), (second, 7.0), (third, 6.0)):
        server.answers = {f"max_over_time({USED}": [(LABELS, value)]}
        await reader.read(piece)
    assert reader.rows[ROW].evidence["max", USED].at_ms == HOUR
    server.answers = {f"max_over_time({USED}": [(LABELS, 8.0)]}
    await reader.read(Span(3 * HOUR, 4 * HOUR))
    assert reader.rows[ROW].evidence["max", USED].at_ms == 4 * HOUR


async def test_looks_at_a_row_are_seconds_that_add_up() -> None:
    server = Server({f"count_over_time({USED}": [(LABELS, 24.0)], f"count_over_time({ACTIVE}": [(LABELS, 12.0)]})
    rows = await read(server, PIECE, Span(2 * HOUR, 4 * HOUR))
    assert rows[ROW].seen == {USED: 2 * 7200.0, ACTIVE: 2 * 3600.0}
    # one look each five minutes, and none at the moment at which the piece before ends
    assert any(expression.endswith("[7199999ms:300000ms])") for expression, _ in server.asked)


async def test_the_least_share_of_all_pieces_and_the_newest_profile_count() -> None:
    reader = PeaksReader(server := Server({}), [], "cluster")
    for share, profile in ((0.5, "1g.10gb"), (0.25, "2g.20gb"), (0.75, "3g.40gb")):
        server.answers = {
            "min_over_time(pod_gpu_allocated_ratio": [(LABELS, share)],
            "last_over_time(pod_gpu_info": [({**LABELS, "GPU_I_PROFILE": profile}, 1.0)],
        }
        await reader.read(PIECE)
    assert (reader.rows[ROW].share, reader.rows[ROW].profile) == (0.25, "3g.40gb")


async def test_a_whole_gpu_is_a_share_of_one() -> None:
    rows = await read(Server({"min_over_time(pod_gpu_allocated_ratio": [(LABELS, 1.0)]}))
    assert rows[ROW].share == 1.0


async def test_all_rows_of_a_container_with_several_devices_are_marked() -> None:
    other = {**LABELS, "UUID": "GPU-2"}
    alone = {**LABELS, "container": "d"}
    of_container = {name: LABELS[name] for name in ("node", "namespace", "pod", "container")}
    answers = {
        f"max_over_time({USED}": [(labels, 1.0) for labels in (LABELS, other, alone)],
        "max_over_time(count by (node": [(of_container, 2.0)],
    }
    rows = await read(Server(answers))
    assert [(row[2:4], peaks.has_several) for row, peaks in rows.items()] == [
        (("c", "GPU-1"), True),
        (("c", "GPU-2"), True),
        (("d", "GPU-1"), False),
    ]


@pytest.mark.parametrize("values", [(3.0, 5.0), (5.0, 3.0)])
async def test_of_several_scrapers_the_largest_value_counts(values: Sequence[float]) -> None:
    series = [({**LABELS, "job": f"job-{value}"}, value) for value in values]
    rows = await read(Server({f"max_over_time({USED}": series}))
    (peak,) = rows[ROW].evidence.values()
    assert peak.value == 5.0
    assert 'job="job-5.0"' in peak.query


async def test_rows_have_no_node_since_samples_may_not_name_it() -> None:
    nameless = {name: value for name, value in LABELS.items() if name != "node"}
    answers = {f"max_over_time({USED}": [(nameless, 1.0)], f"max_over_time({ACTIVE}": [(LABELS, 1.0)]}
    assert list(await read(Server(answers))) == [ROW]


async def test_what_is_too_much_is_asked_about_each_half() -> None:
    server = Server({f"max_over_time({USED}": [(LABELS, 7.0)], f"count_over_time({USED}": [(LABELS, 6.0)]}, HOUR)
    rows = await read(server)
    assert rows[ROW].evidence["max", USED].query.endswith("[3600000ms])")
    assert rows[ROW].evidence["max", USED].at_ms == HOUR
    assert rows[ROW].seen[USED] == 2 * 6 * 300.0
