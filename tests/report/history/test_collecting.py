"""All that a report asks a server for, and what it makes of the answers."""

import re
from collections.abc import Mapping, Sequence

import pytest

from exporter.errors import Malformed, Unavailable
from exporter.report.history.collect import AccountsReader, FactsReader, collect, halves
from exporter.report.history.prometheus_api import AnsweredSeries, PrometheusApi, RangeAnswer, TooMuch
from exporter.report.report import ReportInput
from exporter.report.rows import Amounts, RowKey
from exporter.report.span import Span
from tests.report.history.test_asking import EMPTY, Connection

HOUR, DAY_MS = 3_600_000, 86_400_000
SPAN = Span(10 * DAY_MS, 10 * DAY_MS + 2 * HOUR)
ROW = {"namespace": "a", "pod": "p", "container": "c", "UUID": "GPU-1", "GPU_I_ID": "", "node": "n"}
Answer = Sequence[tuple[Mapping[str, str], float]]


class Server(PrometheusApi):
    """What it answers to each query in which a text stands; to any other query nothing."""

    def __init__(self, answers: Mapping[str, Answer | Exception] | None = None) -> None:
        super().__init__(Connection([EMPTY.replace(b'"result"', b'"storageRetention": "15d", "result"')]))
        self.answers = answers or {}
        self.asked: list[tuple[str, int]] = []

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        self.asked.append((expression, at_ms))
        answer = next((answer for text, answer in self.answers.items() if text in expression), ())
        if isinstance(answer, Exception):
            raise answer
        return RangeAnswer(series=[AnsweredSeries(labels, ((at_ms / 1000, value),)) for labels, value in answer])

    def asked_about(self, text: str) -> str:
        """The first query in which a text stands."""
        return next(expression for expression, _ in self.asked if text in expression)


async def collected(server: Server, span: Span = SPAN, *, per_token: bool = False) -> ReportInput:
    return await collect(
        server,
        span,
        matchers=['job="gpu"'],
        wanted=frozenset({"queue"}),
        on_progress=lambda *_: None,
        per_token=per_token,
    )


async def test_the_facts_of_a_span_are_those_that_the_server_answers() -> None:
    build: dict[str, Answer | Exception] = {
        "pod_gpu_exporter_build_info": [({}, 1.0)],
        "kube_node_status_capacity": [({"node": "dark"}, 8.0)],
    }
    models = [({"UUID": "GPU-1", "modelName": "H100"}, 1.0)]
    server = Server(
        {**build, "pod_gpu_info": models, "pod_gpu_accounting_gap": [({"reason": "page", "job": "j"}, 5.0)]}
    )
    facts = (await collected(server)).facts
    assert (facts.has_exporter, facts.nodes_elsewhere, facts.models) == (True, {"dark"}, {"GPU-1": "H100"})
    assert facts.gaps == {"page": 5.0 * len(SPAN.pieces())}
    assert (facts.retention, facts.tokens, facts.unanswered, facts.began_ms) == ("15d", None, {}, None)
    assert (await collected(Server())).facts.has_exporter is False


async def test_each_query_is_about_the_series_that_match() -> None:
    server = Server()
    await collected(server, per_token=True)
    assert all('job="gpu"' in expression for expression, _ in server.asked)
    assert 'modelName!=""' in server.asked_about("pod_gpu_info")
    assert 'resource=~"nvidia_com_.*"' in server.asked_about("kube_node_status_capacity")


async def test_what_was_there_at_last_is_asked_of_the_last_day() -> None:
    long = Span(SPAN.from_ms, SPAN.from_ms + 3 * DAY_MS)
    for span, ms in ((long, DAY_MS), (SPAN, 2 * HOUR)):
        server = Server()
        await collected(server, span)
        for family in ("kube_node_status_capacity", "pod_gpu_exporter_build_info"):
            assert f"[{ms}ms]" in server.asked_about(family)
            assert (server.asked_about(family), span.to_ms) in server.asked


async def test_what_a_server_leaves_unanswered_is_named_and_left_out() -> None:
    facts = (await collected(Server({"pod_gpu_info": TooMuch("too many samples")}))).facts
    assert (facts.unanswered, facts.models) == ({"TooMuch": "too many samples"}, {})


async def test_tokens_of_a_pod_add_up_by_its_models() -> None:
    pod = {"namespace": "ml", "pod": "llm-0"}
    tokens = [({**pod, "model_name": "llama"}, 5.0), ({**pod, "model_name": "qwen"}, 1.0), ({"cluster": "x"}, 2.0)]
    pieces = len(SPAN.pieces())
    facts = (await collected(Server({"vllm:generation_tokens_total": tokens}), per_token=True)).facts
    assert facts.tokens == {
        ("", "ml", "llm-0"): {"llama": 5.0 * pieces, "qwen": 1.0 * pieces},
        ("x", "", ""): {"": 2.0 * pieces},
    }
    assert (await collected(Server(), per_token=True)).facts.tokens == {}


async def test_the_progress_begins_with_none_and_ends_with_all_pieces() -> None:
    steps: list[tuple[int, int]] = []
    seen: list[Span] = []

    async def also(piece: Span) -> None:
        seen.append(piece)

    def on_progress(done: int, of: int) -> None:
        steps.append((done, of))

    made = await collect(Server(), SPAN, matchers=(), wanted=frozenset(), on_progress=on_progress, also=[also])
    pieces = SPAN.pieces()
    assert steps == [(number, len(pieces)) for number in range(len(pieces) + 1)]
    assert tuple(seen) == pieces
    assert [moment.span for moment in made.moments] == [*pieces]
    assert made.span == SPAN


async def test_a_small_query_that_is_too_much_ends_the_report() -> None:
    with pytest.raises(Unavailable, match="does not answer a small query: busy") as refused:
        await collected(Server({"last_over_time(node_gpu_capacity": TooMuch("busy")}))
    assert "--timeout" in refused.value.trouble.remedy


def test_a_piece_of_a_minute_is_not_halved() -> None:
    assert halves(Span(0, 60_001), TooMuch("busy")) == (Span(0, 30_001), Span(30_001, 60_001))
    with pytest.raises(Unavailable, match="even for a minute of it: busy"):
        halves(Span(0, 60_000), TooMuch("busy"))


async def test_gpus_are_looked_at_twelve_times_in_a_piece() -> None:
    for ms, step in ((HOUR, 300_000), (HOUR // 2, 150_000), (DAY_MS, 300_000), (6000, 1000)):
        server = Server()
        await FactsReader(api=server, matchers=()).read(Span(DAY_MS, DAY_MS + ms))
        assert server.asked_about("node_gpu_capacity").endswith(f"[{ms - 1}ms:{step}ms]")


async def test_the_gpus_of_ten_minutes_before_the_span_are_looked_at() -> None:
    server = Server()
    reader = FactsReader(api=server, matchers=(), cluster_label="site")
    await reader.begin(SPAN)
    asked = ("max by (site, node, model) (node_gpu_capacity{})[599999ms:60000ms]", SPAN.from_ms)
    assert server.asked == [asked]


class Accounts:
    """It has the same growing rows of labels at any time: a second a second since 1970."""

    def __init__(self, *rows: Mapping[str, str], **answer: object) -> None:
        self.rows = rows
        self.answer = answer
        self.asked: list[str] = []

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        self.asked.append(expression)
        family = re.search(r"(pod_\w+_total)", expression)
        rows = self.rows if family and family[1] == "pod_gpu_allocated_seconds_total" else ()
        seconds = at_ms / 1000
        if expression.startswith("min_over_time"):
            seconds -= HOUR / 1000
        if expression.startswith("resets"):
            rows = ()
        series = [AnsweredSeries(labels, ((at_ms / 1000, seconds),)) for labels in rows]
        return RangeAnswer(series=series, **self.answer)  # type: ignore[arg-type]  # fields by name


async def read(server: Accounts, **more: str) -> AccountsReader:
    reader = AccountsReader(api=server, matchers=(), wanted=frozenset({"queue"}), **more)
    await reader.begin(SPAN)
    for piece in SPAN.cut(HOUR):
        await reader.read(piece)
    return reader


async def test_rows_without_a_cluster_are_of_the_one_that_others_of_the_gpu_name() -> None:
    other = {**ROW, "UUID": "GPU-2"}
    reader = await read(Accounts({**ROW, "cluster": "x", "job": "a"}, {**ROW, "job": "b"}, other))
    assert {(key.uuid, key.cluster): amounts.held for key, amounts in reader.growth.grown.items()} == {
        ("GPU-1", "x"): 7200.0,
        ("GPU-2", ""): 7200.0,
    }


async def test_the_cluster_is_in_the_label_that_names_it() -> None:
    reader = await read(Accounts({**ROW, "site": "x", "queue": "q", "other": "o"}), cluster_label="site")
    key = RowKey("a", "p", "c", "GPU-1", "", "n", "x")
    assert reader.growth.grown == {key: Amounts(held=7200.0)}
    assert reader.growth.labels == {key: {"queue": "q"}}


async def test_oddities_of_all_answers_are_kept() -> None:
    server = Accounts(odd=2, warnings=("store 3 is away",))
    reader = await read(server)
    assert reader.odd == 2 * len(server.asked)
    assert (list(reader.warnings), reader.has_renamed) == (["store 3 is away"], False)
    assert (await read(Accounts({**ROW, "exported_pod": "q"}))).has_renamed


async def test_rows_that_fell_are_asked_for_and_no_others() -> None:
    server = Accounts(ROW)
    await read(server)
    of_resets = [expression for expression in server.asked if expression.startswith("resets")]
    assert len(of_resets) == 2 * 6
    assert all(expression.endswith("[3600000ms]) > 0") for expression in of_resets)
    assert not any(" > 0" in expression for expression in server.asked if not expression.startswith("resets"))
    assert server.asked[0] == "last_over_time(node_gpu_capacity{}[300000ms])"


async def test_more_rows_than_are_counted_end_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [{**ROW, "pod": f"p{number}"} for number in range(2)]
    for most in (2, 1):
        monkeypatch.setattr("exporter.report.history.collect.MOST_ROWS", most)
        if most == len(rows):
            await read(Accounts(*rows))
        else:
            with pytest.raises(Malformed, match="the span has more than 1 rows"):
                await read(Accounts(*rows))
