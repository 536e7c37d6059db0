"""The data of a report, from a Prometheus server: piece by piece of the span, in the order of time.

For a piece and a family, three queries ask for each row's first value (`min_over_time`, since counters grow), for its
last value, and for the rows that fell. If that is not enough (report/growth.py), every sample of the nodes in question
is read. If these are many samples, the piece is cut in six first, and all samples are read only of the parts in which
something happened. A week costs some five hundred small queries, and a restart of an exporter a few more.

Tests: tests/report/history/test_collecting.py, tests/report/history/test_facts.py, tests/report/test_growth.py.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from exporter.errors import Malformed, SourceError, Unavailable
from exporter.pulse import end_tasks
from exporter.report.capacity import MOST_GAP_MS, CapacityLooks
from exporter.report.growth import FamilyPiece, Growth
from exporter.report.history.prometheus_api import AnsweredSeries, PrometheusApi, RangeAnswer, TooMuch
from exporter.report.report import Moment, ReportInput
from exporter.report.rows import FAMILIES, CountedSeries, SpanFacts, gaps_of, is_renamed, place_of, series_of, target_of
from exporter.report.span import Span

T = TypeVar("T")
# Nodes by their places (`RowKey.place`); None for all nodes.
Places = frozenset[str] | None
CLUSTER_LABEL = "cluster"
MOST_ROWS = 1_000_000
# Every sample is read of a piece that is at most RAW_MS long, or that has at most MOST_SAMPLES if exporters are scraped
# every 15 s. Any other piece is cut first.
RAW_MS = 15 * 60_000
MOST_SAMPLES = 100_000
_USUAL_SCRAPE_MS = 15_000
_CUT = 6
# After a query that was too much, a shorter piece is asked for, but none shorter than this.
LEAST_MS = 60_000
# The time that Prometheus itself looks back for the value of a moment.
LOOKBACK_MS = 5 * 60_000
CAPACITY = "node_gpu_capacity"
_GAPS = "pod_gpu_accounting_gap_seconds_total"
# the counters of tokens of vLLM, SGLang, TensorRT-LLM, NIM, Triton with TensorRT-LLM and TGI: docs/bill.md#tokens
TOKENS = (
    "vllm:generation_tokens_total", "sglang:generation_tokens_total", "trtllm_generation_tokens_total",
    "generation_tokens_total", "nv_llm_output_token_len_sum", "tgi_request_generated_tokens_sum",
)  # fmt: skip


class RangeServer(Protocol):
    """A Prometheus server that answers queries."""

    async def query(self, expression: str, at_ms: int) -> RangeAnswer:
        """The answer to an instant query about a moment; see `PrometheusApi.query`."""
        ...


@dataclass(kw_only=True, eq=False)
class AccountsReader:
    """A reader of the accounts' rows, which adds them to a `Growth`. `wanted` are labels that a report may group by."""

    api: RangeServer
    matchers: Sequence[str]
    wanted: frozenset[str]
    cluster_label: str = CLUSTER_LABEL
    growth: Growth = field(default_factory=Growth, init=False)
    odd: int = field(default=0, init=False)
    has_renamed: bool = field(default=False, init=False)
    warnings: dict[str, None] = field(default_factory=dict, init=False)
    _clusters: dict[tuple[str, str], str] = field(default_factory=dict, init=False)  # by a node's name and a GPU's UUID

    async def begin(self, span: Span) -> None:
        """Note the rows' values at the beginning of the span. Raises SourceError as `read` does."""
        before = Span(span.from_ms - LOOKBACK_MS, span.from_ms)
        scraped = await self._one("last_over_time", CAPACITY, before)
        self.growth.begin(await self._all("last_over_time", before), scraped)

    async def read(self, piece: Span) -> None:
        """Add the growth in a piece of the span. Pieces come in the order of time.

        Raises:
            SourceError: the server does not answer, answers unlike Prometheus, or with too much.
        """
        await self._read(piece)
        if self.growth.rows > MOST_ROWS:
            remedy = "ask for less at a time with --match, such as --match cluster=a, or for a shorter span"
            raise Malformed("oversize", f"the span has more than {MOST_ROWS} rows", remedy=remedy)

    async def _read(self, piece: Span, places: Places = None) -> None:
        """Count a piece's growth by its ends. Where that is not clear, parts are read, and in the end every sample."""
        try:
            first = await self._all("min_over_time", piece, places)
            last = await self._all("last_over_time", piece, places)
            fell = await self._all("resets", piece, places)
        except TooMuch as error:
            for half in halves(piece, error):
                await self._read(half, places)
            return
        of_families = zip(first, last, fell, strict=True)
        pieces = [FamilyPiece(first=begin, last=end, fell=resets) for begin, end, resets in of_families]
        for batch in batches(self.growth.count(pieces)):
            of_these = frozenset(batch)
            rows = max(sum(row.key.place in of_these for row in answer) for answer in last)
            is_short = piece.ms <= RAW_MS
            if is_short or rows * piece.ms <= MOST_SAMPLES * _USUAL_SCRAPE_MS:
                await self._replay(piece, of_these)
                continue
            for shorter in piece.cut(-(-piece.ms // _CUT)):
                await self._read(shorter, of_these)

    async def _replay(self, piece: Span, places: Places) -> None:
        try:
            samples = await self._all("", piece, places)
            scraped = await self._one("", CAPACITY, piece, places)
        except TooMuch as error:
            for half in halves(piece, error):
                await self._replay(half, places)
            return
        self.growth.replay(samples, piece.from_ms / 1000, scraped)

    async def _all(self, function: str, piece: Span, places: Places = None) -> Sequence[Sequence[CountedSeries]]:
        """The result of a function over the piece for every family; every sample if `function` is ""."""
        return await _together(*(self._one(function, family, piece, places) for family in FAMILIES))

    async def _one(self, function: str, family: str, piece: Span, places: Places = None) -> Sequence[CountedSeries]:
        matchers = self.matchers if places is None else (*self.matchers, of_nodes(places))
        rows = f"{selector(family, matchers)}[{piece.ms}ms]"
        expression = f"{function}({rows})" if function else rows
        if function == "resets":
            expression += " > 0"
        answer = await self.api.query(expression, piece.to_ms)
        self.odd += answer.odd
        self.has_renamed |= any(is_renamed(series.labels) for series in answer.series)
        self.warnings.update(dict.fromkeys(answer.warnings))
        counted = self._of_clusters(
            [series_of(answered.labels, answered.points, self.wanted, self.cluster_label) for answered in answer.series]
        )
        return [row for row in counted if places is None or row.key.place in places]

    def _of_clusters(self, counted: Sequence[CountedSeries]) -> Sequence[CountedSeries]:
        """The series, each with its cluster.

        A series may name none, since one of two servers has no label for it, or the server has it only since some day.
        Then its cluster is the one that other series of the GPU name.
        """
        for series in counted:
            if series.key.cluster:
                self._clusters[series.key.node, series.key.uuid] = series.key.cluster
        if not self._clusters:
            return counted
        return [self._with_cluster(series) for series in counted]

    def _with_cluster(self, series: CountedSeries) -> CountedSeries:
        key = series.key
        if key.cluster:
            return series
        cluster = self._clusters.get((key.node, key.uuid), "")
        return series._replace(key=key._replace(cluster=cluster)) if cluster else series


async def _together(*coroutines: Coroutine[Any, Any, T]) -> Sequence[T]:
    """The results of all coroutines. If one fails, the others are ended, since nobody reads their results."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except (SourceError, TooMuch):
        caller = asyncio.current_task()
        if caller is not None and caller.cancelling():
            # gather() raises only the failure, so that the caller would go on although it is cancelled
            raise asyncio.CancelledError from None
        raise
    finally:
        await end_tasks(*tasks)


def _looks_of(piece: Span, step_ms: int) -> str:
    """A subquery's window and step."""
    # Before Prometheus 3.0 a window includes both its ends. So a whole window would have one look more than steps.
    return f"[{piece.ms - 1}ms:{step_ms}ms]"


def halves(piece: Span, error: TooMuch) -> Sequence[Span]:
    """The halves of a piece that was too much for one query.

    Raises:
        Unavailable: the piece is no longer than a minute.
    """
    if piece.ms > LEAST_MS:
        return tuple(piece.cut(-(-piece.ms // 2)))
    message = f"the server cannot answer even for a minute of it: {error}"
    remedy = "ask for less at a time with --match, such as --match cluster=a, or give it more time with --timeout"
    raise Unavailable("http_status", message, remedy=remedy) from error


# A piece has this many looks at the nodes, which are never farther apart than Prometheus looks back by itself.
_LOOKS = 12
_MOST_STEP_MS = 300_000
_LEAST_STEP_MS = 1000


@dataclass(kw_only=True, eq=False)
class FactsReader:
    """A reader of facts beside the accounts: GPUs, nodes, gaps. It leaves out facts that a server cannot answer.

    The server itself adds up these facts, since they need not be right to the second.
    """

    api: PrometheusApi
    matchers: Sequence[str]
    cluster_label: str = CLUSTER_LABEL
    facts: SpanFacts = field(default_factory=SpanFacts, init=False)
    gaps: dict[tuple[str, str], float] = field(default_factory=dict, init=False)  # seconds, by target and reason
    capacity: CapacityLooks = field(default_factory=CapacityLooks, init=False)

    async def begin(self, span: Span) -> None:
        """Note the GPUs that nodes had shortly before the span, since a gap may begin before it."""
        before = Span(span.from_ms - MOST_GAP_MS, span.from_ms)
        for place, _, gpus in await self._looks(before, LEAST_MS):
            self.capacity.begin(place, span.from_ms, gpus)

    async def read(self, piece: Span) -> None:
        """Add the facts about a piece of the span."""
        step_ms = max(_LEAST_STEP_MS, min(_MOST_STEP_MS, piece.ms // _LOOKS))
        await self._read_models(piece)
        for place, at_ms, gpus in await self._looks(piece, step_ms):
            self.capacity.add(place, at_ms, step_ms, gpus)
        await self._read_failing(piece, step_ms)
        await self._read_gaps(piece)
        if self.facts.tokens is not None:
            await self._read_tokens(piece, self.facts.tokens)

    async def _read_models(self, piece: Span) -> None:
        info = self._rows("pod_gpu_info", 'modelName!=""')
        models = f"max by (UUID, modelName) (last_over_time({info}[{piece.ms}ms]))"
        for series in await self._ask(models, piece):
            self.facts.models[series.labels.get("UUID", "")] = series.labels.get("modelName", "")

    async def _read_failing(self, piece: Span, step_ms: int) -> None:
        """Add the time during which containers held devices that were failing or gone."""
        verdicts = self._rows("pod_gpu_device_verdict", 'verdict=~"failing|gone"', 'pod!=""')
        failing = f"sum(max by ({self.cluster_label}, node, UUID, GPU_I_ID) ({verdicts}))"
        for series in await self._ask(f"sum_over_time({failing}{_looks_of(piece, step_ms)})", piece):
            self.facts.failing_seconds += series.last * step_ms / 1000

    async def _read_gaps(self, piece: Span) -> None:
        """Add the time during which exporters themselves saw nothing."""
        for series in await self._ask(f"increase({self._rows(_GAPS)}[{piece.ms}ms])", piece):
            reason = series.labels.get("reason", "")
            labels = {name: text for name, text in series.labels.items() if name != "reason"}
            gap = (target_of(labels), reason)
            self.gaps[gap] = self.gaps.get(gap, 0.0) + series.last

    async def _read_tokens(self, piece: Span, tokens: dict[tuple[str, str, str], dict[str, float]]) -> None:
        grown = " or ".join(f"increase({self._rows(name)}[{piece.ms}ms])" for name in TOKENS)
        each = f'sum without (instance, engine) (label_replace({grown}, "model_name", "$1", "model", "(.+)"))'
        by = (self.cluster_label, "namespace", "pod", "model_name")
        for series in await self._ask(f"max by ({', '.join(by)}) ({each})", piece):
            cluster, namespace, pod, model = (series.labels.get(label, "") for label in by)
            of_pod = tokens.setdefault((cluster, namespace, pod), {})
            of_pod[model] = of_pod.get(model, 0.0) + series.last

    async def _looks(self, piece: Span, step_ms: int) -> Sequence[tuple[str, int, Mapping[str, float]]]:
        """All looks of a piece in order of time: the node's place, the moment (ms), and the node's GPUs by model."""
        capacity = f"max by ({self.cluster_label}, node, model) ({self._rows(CAPACITY)})"
        looks = defaultdict[tuple[int, str], dict[str, float]](dict)
        for series in await self._ask(f"{capacity}{_looks_of(piece, step_ms)}", piece):
            place = self._place(series)
            model = series.labels.get("model", "")
            for at_seconds, gpus in series.points:
                looks[round(at_seconds * 1000), place][model] = gpus
        in_order = sorted(looks.items(), key=itemgetter(0))
        return [(place, at_ms, gpus) for (at_ms, place), gpus in in_order]

    async def end(self, span: Span) -> None:
        """Add the facts about the whole span."""
        last = Span(max(span.from_ms, span.to_ms - 86_400_000), span.to_ms)
        self.facts.retention = await self.api.retention()
        nodes = selector("kube_node_status_capacity", (*self.matchers, 'resource=~"nvidia_com_.*"'))
        by_node = f"max by ({self.cluster_label}, node) (last_over_time({nodes}[{last.ms}ms])) > 0"
        for series in await self._ask(by_node, last):
            self.facts.nodes_elsewhere.add(self._place(series))
        build = selector("pod_gpu_exporter_build_info", self.matchers)
        self.facts.has_exporter = bool(await self._ask(f"count(last_over_time({build}[{last.ms}ms])) > 0", last))

    def _place(self, series: AnsweredSeries) -> str:
        return place_of(series.labels.get(self.cluster_label, ""), series.labels.get("node", ""))

    def _rows(self, family: str, *more: str) -> str:
        return selector(family, (*self.matchers, *more))

    async def _ask(self, expression: str, piece: Span) -> Sequence[AnsweredSeries]:
        try:
            return (await self.api.query(expression, piece.to_ms)).series
        except (SourceError, TooMuch) as error:
            self.facts.unanswered[type(error).__name__] = str(error)
            return ()


OnProgress = Callable[[int, int], None]


async def collect(
    api: PrometheusApi,
    span: Span,
    *,
    matchers: Sequence[str],
    wanted: frozenset[str],
    on_progress: OnProgress,
    cluster_label: str = CLUSTER_LABEL,
    per_token: bool = False,
    also: Sequence[Callable[[Span], Coroutine[Any, Any, None]]] = (),
) -> ReportInput:
    """Collect the data of a span for a report.

    Args:
        api: the server.
        span: the span.
        matchers: matchers that all queries have.
        wanted: the labels that the report may group by.
        on_progress: is called with the number of finished pieces, and of all pieces.
        cluster_label: the label that names the cluster.
        per_token: whether tokens are counted.
        also: further readers, which are called with each piece.

    Raises:
        SourceError: the server does not answer, or answers unlike Prometheus.
    """
    accounts = AccountsReader(api=api, matchers=matchers, wanted=wanted, cluster_label=cluster_label)
    others = FactsReader(api=api, matchers=matchers, cluster_label=cluster_label)
    others.facts.tokens = {} if per_token else None
    moments = []
    pieces = span.pieces()
    on_progress(0, len(pieces))
    await _begin(span, accounts, others)
    for number, piece in enumerate(pieces, 1):
        await _together(accounts.read(piece), others.read(piece), *(read(piece) for read in also))
        moments.append(Moment(piece, accounts.growth.take_lately()))
        on_progress(number, len(pieces))
    await others.end(span)
    return _collected(span, accounts, others, moments)


async def _begin(span: Span, accounts: AccountsReader, others: FactsReader) -> None:
    """Read what must be known before the first piece; these queries are small."""
    try:
        await _together(accounts.begin(span), others.begin(span))
    except TooMuch as error:
        remedy = "is it overloaded? Give it more time with --timeout, or ask for less with --match"
        raise Unavailable("http_status", f"the server does not answer a small query: {error}", remedy=remedy) from error


def _collected(span: Span, accounts: AccountsReader, others: FactsReader, moments: Sequence[Moment]) -> ReportInput:
    growth = accounts.growth
    facts = replace(
        others.facts,
        capacity=others.capacity.seconds,
        seen_ms=others.capacity.seen_ms,
        gaps=gaps_of(others.gaps, growth.targets),
        odd=accounts.odd,
        has_renamed=accounts.has_renamed,
        warnings=tuple(accounts.warnings),
        restarts=growth.restarts,
        began_ms=None if growth.began_seconds is None else int(growth.began_seconds * 1000),
    )
    return ReportInput(span=span, grown=growth.grown, labels=growth.labels, facts=facts, moments=tuple(moments))


_MATCH = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)(=~|!~|!=|=)(.*)", re.DOTALL)
# Some proxies allow addresses of at most 8 KiB, in which every character may become three bytes.
_MOST_CHARS = 2000


def quoted(text: str) -> str:
    """A text in the quotes of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def read_match(text: str) -> str:
    """Read `cluster=a`, `cluster!=a` or `node=~gpu-.*` as a matcher of PromQL. The value may have quotes around it.

    Raises:
        ValueError: the text is none of these.
    """
    match = _MATCH.fullmatch(text)
    if not match:
        raise ValueError(text)
    name, operator, value = match.groups()
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = value[1:-1]
    return f"{name}{operator}{quoted(value)}"


def of_nodes(places: Iterable[str]) -> str:
    """The matcher of rows of the nodes in these places. It also matches nodes of the same names in other clusters."""
    nodes = sorted({place.rpartition("/")[2] for place in places})
    return f"node=~{quoted('|'.join(re.escape(node) for node in nodes))}"


def batches(nodes: Iterable[str], most: int = 50) -> Iterator[Sequence[str]]:
    """The nodes in a stable order, in batches that an address has room for."""
    batch: list[str] = []
    chars = 0
    for node in sorted(nodes):
        if batch and (len(batch) == most or chars + len(node) > _MOST_CHARS):
            yield batch
            batch = []
            chars = 0
        batch.append(node)
        chars += len(node) + 1
    if batch:
        yield batch


def selector(family: str, matchers: Iterable[str]) -> str:
    """The selector of a family's series."""
    return f"{family}{{{', '.join(matchers)}}}"
