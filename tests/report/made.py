"""Reports as tests make them."""

from collections.abc import Mapping, Sequence

from exporter.report.costs import Prices
from exporter.report.groups import GroupBy
from exporter.report.report import Moment, Report, ReportInput, make_report
from exporter.report.rows import Amounts, RowKey, SpanFacts
from exporter.report.span import Span

HOUR = 3600.0
KWH = 3.6e6
SPAN = Span(1_793_000_000_000, 1_793_000_000_000 + 86_400_000)
A100, H100 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"
Given = tuple[RowKey, Amounts, Mapping[str, str]]


def row(namespace: str, pod: str, amounts: Amounts, *, uuid: str = "GPU-1", node: str = "n", **labels: str) -> Given:
    return RowKey(namespace, pod, "main" if pod else "", uuid, "", node), amounts, labels


ROWS = (
    row(
        "vision",
        "train-1",
        Amounts(20 * HOUR, 15 * HOUR, HOUR, 6 * KWH),
        workload_name="train",
        workload_kind="Job",
        queue="research",
    ),
    row(
        "vision",
        "train-2",
        Amounts(4 * HOUR, HOUR, HOUR, KWH),
        uuid="GPU-2",
        workload_name="train",
        workload_kind="Job",
        label_team="eyes",
        queue="vision/user-queue",
    ),
    row("books", "jupyter-0", Amounts(10 * HOUR, 0.5 * HOUR, 9 * HOUR, KWH / 2), uuid="GPU-2", label_team="words"),
    row("", "", Amounts(joules=KWH / 4), uuid="GPU-3"),
)


def collected(rows: Sequence[Given] = ROWS, facts: SpanFacts | None = None) -> ReportInput:
    facts = facts or SpanFacts(
        models={"GPU-1": H100, "GPU-2": A100},
        capacity={("n", H100): 48 * HOUR, ("n", A100): 24 * HOUR},
        seen_ms={"n": SPAN.ms},
    )
    pieces = SPAN.pieces()
    total = Amounts()
    for _, amounts, _ in rows:
        total = total.plus(amounts)
    each = Amounts(*(amount / len(pieces) for amount in total))
    return ReportInput(
        span=SPAN,
        grown={key: amounts for key, amounts, _ in rows},
        labels={key: labels for key, _, labels in rows},
        facts=facts,
        moments=[Moment(piece, each) for piece in pieces],
    )


def made(
    by: GroupBy | None = None,
    prices: Prices | None = None,
    rows: Sequence[Given] = ROWS,
    facts: SpanFacts | None = None,
) -> Report:
    return make_report(collected(rows, facts), by or GroupBy("namespace"), prices or Prices())
