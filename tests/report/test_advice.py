"""What would have sufficed: of worlds whose needs are known, never too little, seldom too much, and else a reason."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from exporter.report.advice import Advice, Evidence, RowPeaks, advise
from exporter.report.advice_forms import render_advice
from exporter.report.costs import read_prices
from exporter.report.report import ReportInput
from exporter.report.rows import Amounts, RowKey, SpanFacts
from exporter.report.sizes import share_of, sizes_of
from exporter.report.span import Span
from tests.report.needing import REAL, Needs, make_needs, scraped

HOUR = 3600
SPAN = Span(0, 26 * HOUR * 1000)
PIECE_SECONDS = 6 * HOUR
KEY = RowKey("shop", "render-0", "main", "GPU-1", "", "n")
PRICES = read_prices(["2"], None)


def peaks_of(needs: Needs) -> RowPeaks:
    """As Prometheus' functions would say, piece by piece."""
    chance = random.Random(needs.number)
    peaks = RowPeaks(share=needs.share, profile=needs.held.name)
    for family, values in (
        ("pod_gpu_memory_used_bytes", needs.memory),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", needs.activity),
    ):
        points = scraped(values, chance)
        pieces: dict[int, list[float]] = {}
        for at, value in points:
            pieces.setdefault(at // PIECE_SECONDS, []).append(value)
        p95 = max(sorted(piece)[int(0.95 * (len(piece) - 1))] for piece in pieces.values())
        peaks.evidence["max", family] = Evidence(max(value for _, value in points), "max", 0)
        peaks.evidence["p95", family] = Evidence(p95, "p95", 0)
        peaks.seen[family] = 300.0 * len({at // 300 for at, _ in points})
    return peaks


def collected(model: str, amounts: Amounts, facts: SpanFacts | None = None) -> ReportInput:
    facts = facts or SpanFacts(models={"GPU-1": model})
    return ReportInput(span=SPAN, grown={KEY: amounts}, labels={KEY: {}}, facts=facts, moments=())


def advised(needs: Needs) -> Advice:
    amounts = Amounts(held=26 * HOUR * needs.share)
    (advice,) = advise(collected(needs.model, amounts), {KEY[:5]: peaks_of(needs)}, PRICES)
    return advice


# issue 20, Must show 4
def test_200_worlds_get_never_too_little_and_seldom_a_profile_too_much() -> None:
    steps = []
    for number in range(200):
        needs = make_needs(number)
        advice = advised(needs)
        assert not advice.refused, (number, advice.refused)
        parts = REAL[needs.model]
        names = [part.name for part in parts]
        at = names.index(advice.size.name) if advice.size else parts.index(needs.held)
        assert advice.size is None or needs.suffices(parts[at]), (number, advice)
        steps.append(at - needs.smallest)
        share = advice.size.share if advice.size else needs.share
        assert advice.beyond == pytest.approx(26 * HOUR * (needs.share - share))
        assert advice.cost == pytest.approx(2 * advice.beyond / HOUR)
    assert min(steps) == 0
    assert sum(step <= 1 for step in steps) >= 180
    assert sum(1 for step in steps if step == 0) > 60  # an advice to keep everything would not do


@pytest.mark.parametrize("model", REAL)
def test_no_size_is_taken_for_more_than_it_really_is(model: str) -> None:
    real = {part.name: part for part in REAL[model]}
    sizes = sizes_of(model)
    assert {size.name for size in sizes} == real.keys() - {""}
    for size in sizes:
        assert size.memory <= real[size.name].mib * 2**20
        assert size.least <= real[size.name].sms + 1e-9


NEEDS = make_needs(1)
Change = Callable[[RowPeaks], RowPeaks]


def without(family: str) -> Change:
    def change(peaks: RowPeaks) -> RowPeaks:
        kept = {key: one for key, one in peaks.evidence.items() if key[1] != family}
        return replace(peaks, evidence=kept)

    return change


@pytest.mark.parametrize(
    ("change", "hours", "restarts", "says"),
    [
        (lambda one: one, 23, {}, "held for 23.0 hours, which is less than a day"),
        (lambda one: one, 26, {"n": 1}, "the exporter began to count anew on n"),
        (lambda one: replace(one, has_several=True), 26, {}, "held several devices at once"),
        (lambda one: replace(one, share=None), 26, {}, "which part of a GPU it held is not known"),
        (lambda one: replace(one, share=0.25), 6.5, {}, "it shared a GPU, and its own activity was not measured"),
        (without("pod_gpu_memory_used_bytes"), 26, {}, "its own memory was not measured"),
        (lambda one: replace(one, seen={}), 26, {}, "its memory is known for 0.0 of 26.0 hours"),
    ],
)
def test_what_the_data_does_not_carry_is_refused_with_its_reason(
    change: Change, hours: float, restarts: Mapping[str, int], says: str
) -> None:
    facts = SpanFacts(models={"GPU-1": "NVIDIA H100 80GB HBM3"}, restarts=restarts)
    peaks = change(replace(peaks_of(NEEDS), share=1.0, profile="", seen={"pod_gpu_memory_used_bytes": 9e5}))
    made = replace(collected("", Amounts(held=hours * HOUR)), facts=facts)
    (advice,) = advise(made, {KEY[:5]: peaks}, PRICES)
    assert says in advice.refused
    assert advice.size is None


# issue 22, line 18
def test_300_workloads_without_advice_are_a_line_for_each_reason() -> None:
    keys = [KEY._replace(pod=f"job{number}x", uuid=f"GPU-{number}") for number in range(300)]
    facts = SpanFacts(models={key.uuid: "NVIDIA A30" for key in keys})
    grown = {key: Amounts(held=(3 + 24 * (number % 3 == 0)) * HOUR) for number, key in enumerate(keys)}
    of_300 = ReportInput(span=SPAN, grown=grown, labels={}, facts=facts, moments=())
    advices = advise(of_300, {}, PRICES)
    unknown = "which part of a GPU it held is not known (pod_gpu_allocated_ratio)"
    lines = render_advice(advices, SPAN, "table").splitlines()
    assert lines[2:] == [
        "No advice for 300 workloads:",
        "  held for less than a day: shop/job100x, shop/job101x, shop/job103x and 197 more",
        f"  {unknown}: shop/job0x, shop/job102x, shop/job105x and 97 more",
        "  --format csv has each, with its own figures",
    ]
    assert render_advice(advices, SPAN, "csv").count("held for 3.0 hours, which is less than a day") == 200


def test_an_unknown_model_and_a_row_without_samples_are_refused() -> None:
    (advice,) = advise(collected("NVIDIA GH200 480GB", Amounts(held=26 * HOUR)), {}, PRICES)
    assert advice.refused == "what NVIDIA GH200 480GB can be cut into is not known"
    (advice,) = advise(collected("NVIDIA A30", Amounts(held=26 * HOUR)), {}, PRICES)
    assert "pod_gpu_allocated_ratio" in advice.refused


@pytest.mark.parametrize(
    ("model", "smallest", "share", "least", "gigabytes"),
    [
        ("NVIDIA A30", "1g.6gb", 1 / 4, 0.21, 5.7),
        ("NVIDIA A100 80GB PCIe", "1g.10gb", 1 / 7, 0.12, 9.5),
        ("NVIDIA A100-SXM4-40GB", "1g.5gb", 1 / 7, 0.12, 4.75),
        ("NVIDIA H100 NVL", "1g.12gb", 1 / 7, 0.12, 11.4),
        ("NVIDIA H100 80GB HBM3", "1g.10gb", 1 / 7, 0.12, 9.5),
        ("NVIDIA H100 PCIe", "1g.10gb", 1 / 7, 0.12, 9.5),
        ("NVIDIA H20", "1g.12gb", 1 / 7, 0.12, 11.4),
        ("NVIDIA H200", "1g.18gb", 1 / 7, 0.12, 17.1),
        ("NVIDIA B200", "1g.23gb", 1 / 7, 0.12, 21.85),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "1g.24gb", 1 / 4, 0.21, 22.8),
        ("Tesla T4", "1/10 of a GPU", 0.1, 0.1, 1.52),
        ("NVIDIA A10", "1/10 of a GPU", 0.1, 0.1, 2.28),
        ("NVIDIA A10G", "1/10 of a GPU", 0.1, 0.1, 2.28),
        ("NVIDIA L4", "1/10 of a GPU", 0.1, 0.1, 2.28),
        ("NVIDIA L40S", "1/10 of a GPU", 0.1, 0.1, 4.56),
    ],
)
def test_the_smallest_part_of_a_model_has_the_least_that_its_name_allows(
    model: str, smallest: str, share: float, least: float, gigabytes: float
) -> None:
    size = sizes_of(model)[0]
    assert size.name == smallest
    assert size[1:] == pytest.approx((share, least, gigabytes * 1e9))


@pytest.mark.parametrize(
    ("profile", "model", "shares"),
    [
        ("", "NVIDIA A30", (1, 1)),
        ("2g.12gb", "NVIDIA A30", (1 / 2, 0.535)),
        ("3g.40gb", "NVIDIA H100 80GB HBM3", (3 / 7, 3.21 / 7)),
        ("7g.80gb", "NVIDIA H100 80GB HBM3", (1, 1)),
        ("1g.5gb", "Tesla T4", (1, 1)),
        ("1g.5gb", "a model that nobody knows", (1, 1)),
    ],
)
def test_a_part_that_is_held_has_the_most_that_its_name_allows(
    profile: str, model: str, shares: tuple[float, float]
) -> None:
    assert share_of(profile, model) == pytest.approx(shares)
