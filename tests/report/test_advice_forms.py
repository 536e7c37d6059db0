"""Advice for workloads whose peaks are given to the byte, and the forms that it is written in."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from exporter.report.advice import Advice, Evidence, RowPeaks, advise
from exporter.report.advice_forms import render_advice
from exporter.report.costs import Prices, read_prices
from exporter.report.report import ReportInput
from exporter.report.rows import Amounts, RowKey, SpanFacts
from exporter.report.span import Span

HOUR = 3600
SPAN = Span(0, 26 * HOUR * 1000)
KEY = RowKey("shop", "render-0", "main", "GPU-1", "", "n")
PRICES = read_prices(["2"], None)
H100 = "NVIDIA H100 80GB HBM3"
MEMORY, ACTIVITY = "pod_gpu_memory_used_bytes", "pod_gpu_utilization_ratio"
SEEN = 30 * HOUR


def peaks(
    memory: float = 15e9, activity: float = 0.09, p95: float = 0.05, *, of: Sequence[str] = (MEMORY, ACTIVITY)
) -> RowPeaks:
    """Those of a container that held a whole GPU, and was seen all the time."""
    evidence = {
        ("max", of[0]): Evidence(memory, "memory?", 1500),
        ("max", of[1]): Evidence(activity, "most?", 2000),
        ("p95", of[1]): Evidence(p95, "p95?", 3000),
    }
    return RowPeaks(evidence=evidence, seen=dict.fromkeys(of, float(SEEN)), share=1.0)


def rows_of(
    *devices: RowPeaks, hours: float = 30, **more: Any
) -> tuple[ReportInput, Mapping[tuple[str, ...], RowPeaks]]:
    """A workload with a pod on each device, which it held for so many hours."""
    keys = [KEY._replace(uuid=f"GPU-{number}", pod=f"render-{number}") for number in range(len(devices))]
    grown = {
        key: Amounts(held=hours * HOUR * (peaks.share or 1), joules=3.6e6)
        for key, peaks in zip(keys, devices, strict=True)
    }
    facts = SpanFacts(models=dict.fromkeys((key.uuid for key in keys), H100), **more)
    given = ReportInput(span=SPAN, grown=grown, labels={}, facts=facts, moments=())
    return given, {key[:5]: one for key, one in zip(keys, devices, strict=True)}


def advised(*devices: RowPeaks, hours: float = 30, prices: Prices = PRICES, **more: Any) -> Advice:
    (advice,) = advise(*rows_of(*devices, hours=hours, **more), prices)
    return advice


def test_what_a_smaller_part_would_have_saved_is_counted_and_priced() -> None:
    advice = advised(peaks(), peaks())
    assert (advice.name, advice.held, advice.amounts) == (
        "shop/StatefulSet/render",
        "a GPU",
        Amounts(held=60 * HOUR, joules=7.2e6),
    )
    assert advice.size is not None
    assert advice.size.name == "1g.20gb"
    assert advice.beyond == pytest.approx(60 * HOUR * 6 / 7)
    assert advice.cost == pytest.approx(2 * 60 * 6 / 7)
    assert advised(peaks(), prices=read_prices([], None)).cost is None


def test_the_highest_peaks_of_all_devices_count() -> None:
    advice = advised(peaks(activity=0.5), peaks(memory=30e9, activity=0.2, p95=0.06))
    assert [value for value, _ in advice.peaks] == [30e9, 0.06, 0.5]
    assert advice.size is None  # a fifth more than half of a GPU is more than 4g has
    assert advice.slower is not None
    assert advice.slower.name == "3g.40gb"
    assert (advice.beyond, advice.cost) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("of", "value", "peak"),
    [
        (("DCGM_FI_DEV_FB_USED", ACTIVITY), 14_000.0, 14_000 * 2**20),
        (("DCGM_FI_DEV_FB_USED_BYTES", ACTIVITY), 15e9, 15e9),
        ((MEMORY, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"), 0.09, 0.09),
        ((MEMORY, "DCGM_FI_DEV_GPU_UTIL"), 9.0, 0.09),
    ],
)
def test_each_family_counts_in_its_own_unit(of: Sequence[str], value: float, peak: float) -> None:
    is_memory = of[1] == ACTIVITY
    one = peaks(memory=value, of=of) if is_memory else peaks(activity=value, p95=value, of=of)
    advice = advised(one)
    assert [advice.peaks[at][0] for at in ((0,) if is_memory else (1, 2))] == pytest.approx(
        [peak] * (1 + (not is_memory))
    )


def test_dcgms_value_goes_before_the_holders_own_on_a_whole_gpu() -> None:
    both = peaks(of=("DCGM_FI_DEV_FB_USED_BYTES", ACTIVITY))
    both.evidence["max", MEMORY] = Evidence(1e9, "own?", 0)
    assert advised(both).peaks[0][0] == 15e9


def test_on_a_shared_gpu_only_the_holders_own_values_count() -> None:
    both = replace(peaks(), share=0.97)
    both.evidence["max", "DCGM_FI_DEV_FB_USED"] = Evidence(70_000, "of all?", 0)
    both.seen["DCGM_FI_DEV_FB_USED"] = SEEN
    advice = advised(both)
    assert (advice.held, advice.peaks[0][0]) == ("part of a GPU", 15e9)
    assert advised(replace(both, share=0.98)).peaks[0][0] == 70_000 * 2**20


def test_the_activity_of_an_instance_is_a_part_of_the_gpus() -> None:
    instance = replace(peaks(memory=4e9, activity=0.5, p95=0.1), share=3 / 7, profile="3g.40gb")
    advice = advised(instance)
    assert advice.held == "3g.40gb"
    assert [value for value, _ in advice.peaks] == pytest.approx([4e9, 0.1 * 3.21 / 7, 0.5 * 3.21 / 7])
    assert (advice.size and advice.size.name, advice.slower and advice.slower.name) == (None, "1g.10gb")
    shared = replace(instance, share=0.2)
    assert advised(shared).held == "part of 3g.40gb"
    # 2 of 7 slices are more than it holds
    assert advised(replace(shared, evidence=peaks(memory=4e9, activity=0.3).evidence)).size is None


@pytest.mark.parametrize(
    ("change", "hours", "refused"),
    [
        ({}, 24, ""),
        ({}, 23.99, "held for 24.0 hours, which is less than a day"),
        ({"seen": {MEMORY: 0.95 * SEEN, ACTIVITY: SEEN}}, 30, ""),
        ({"seen": {MEMORY: 0.94 * SEEN, ACTIVITY: SEEN}}, 30, "its memory is known for 28.2 of 30.0 hours"),
        ({"seen": {MEMORY: SEEN}}, 30, "its activity is known for 0.0 of 30.0 hours"),
        ({"evidence": {("max", MEMORY): Evidence(1, "", 0)}}, 30, "its own activity was not measured"),
        ({"evidence": {}, "share": 0.5}, 30, "it shared a GPU, and its own memory was not measured"),
    ],
)
def test_there_is_advice_for_a_day_and_if_nearly_all_of_it_was_seen(
    change: Mapping[str, Any], hours: float, refused: str
) -> None:
    assert advised(replace(peaks(), **change), hours=hours).refused == refused


@pytest.mark.parametrize("other", [{"evidence": {}}, {"share": None}, {"has_several": True}])
def test_one_device_that_says_too_little_is_enough_to_refuse(other: Mapping[str, Any]) -> None:
    assert advised(peaks(), replace(peaks(), **other)).refused


def test_only_nodes_of_the_workload_that_began_anew_are_named() -> None:
    assert not advised(peaks(), restarts={"elsewhere": 1}).refused
    given, of_rows = rows_of(*[peaks()] * 5)
    keys = [key._replace(node=f"n{number}") for number, key in enumerate(given.grown)]
    grown = dict(zip(keys, given.grown.values(), strict=True))
    facts = replace(given.facts, restarts=dict.fromkeys(("n4", "n3", "n1", "n0"), 2))
    (advice,) = advise(replace(given, grown=grown, facts=facts), of_rows, PRICES)
    assert "began to count anew on n0, n1, n3: what came before" in advice.refused
    assert advice.refused_for == "the exporter began to count anew: what came before that is not known"


def several() -> Sequence[Advice]:
    """In another order: two that save, two that do not, one that is refused; nobody, and a pod that held nothing."""
    given: dict[RowKey, Amounts] = {}
    of_rows: dict[tuple[str, ...], RowPeaks] = {}
    for name, one, hours in (
        ("keeps-little", peaks(memory=70e9), 30),
        ("keeps-much", peaks(memory=70e9), 40),
        ("refused", replace(peaks(), share=None), 90),
        ("saves-little", peaks(), 30),
        ("saves-much", peaks(), 31),
    ):
        key = KEY._replace(pod=name, uuid=name)
        given[key] = Amounts(held=hours * HOUR, joules=3.6e6)
        of_rows[key[:5]] = replace(one, seen=dict.fromkeys(one.seen, 1e9))
    given[KEY._replace(pod="nothing", uuid="GPU-8")] = Amounts(used=1)
    given[RowKey("", "", "", "GPU-9", "", "n")] = Amounts(held=90 * HOUR)
    facts = SpanFacts(models={key.uuid: H100 for key in given})
    collected = ReportInput(span=SPAN, grown=given, labels={}, facts=facts, moments=())
    return advise(collected, of_rows, PRICES)


def test_who_could_save_most_comes_first_and_who_is_refused_last() -> None:
    assert [advice.name for advice in several()] == [
        "shop/saves-much", "shop/saves-little", "shop/keeps-much", "shop/keeps-little", "shop/refused",
    ]  # fmt: skip


TABLE = """\
What would have sufficed from 1970-01-01T00:00:00Z to 1970-01-02T02:00:00Z, with a margin of 20 %

shop/saves-much: 31.00 GPU-hours of a GPU of NVIDIA H100 80GB HBM3
  sufficient: 1g.20gb; 1g.20gb if it may be slower at times; beyond: 26.57 GPU-hours, cost 53.14
  memory peak: 1.5e+10 at 1.500: memory?
  activity p95: 0.05 at 3.000: p95?
  activity peak: 0.09 at 2.000: most?
shop/keeps-much: 40.00 GPU-hours of a GPU of NVIDIA H100 80GB HBM3
  sufficient: what it holds; what it holds if it may be slower at times; beyond: 0.00 GPU-hours, cost 0.00
  memory peak: 7e+10 at 1.500: memory?
  activity p95: 0.05 at 3.000: p95?
  activity peak: 0.09 at 2.000: most?
No advice for 1 workload:
  which part of a GPU it held is not known (pod_gpu_allocated_ratio): shop/refused
"""


def test_advice_as_text_has_the_queries_that_it_rests_on() -> None:
    advices = several()
    assert render_advice([advices[0], advices[2], advices[4]], SPAN, "table") == TABLE
    assert "No advice" not in render_advice(advices[:2], SPAN, "table")


def test_reasons_of_most_workloads_come_first_and_four_have_a_hint() -> None:
    refused = [
        replace(several()[4], name=name, refused=f"{why} {name}", refused_for=why)
        for name, why in ("ax", "by", "cy", "dz")
    ]
    lines = render_advice(refused, SPAN, "table").splitlines()
    assert lines[2:] == [
        "No advice for 4 workloads:",
        "  y: b, c",
        "  x a: a",
        "  z d: d",
        "  --format csv has each, with its own figures",
    ]
    assert "--format csv" not in render_advice(refused[:3], SPAN, "table")


def test_advice_for_programs_has_numbers_and_nothing_for_what_is_refused() -> None:
    advices = several()
    saves, refused = json.loads(render_advice([advices[0], advices[4]], SPAN, "json"))["advice"]
    assert saves == {
        "from": "1970-01-01T00:00:00Z",
        "to": "1970-01-02T02:00:00Z",
        "workload": "shop/saves-much",
        "model": H100,
        "held": "a GPU",
        "sufficient": "1g.20gb",
        "sufficient_if_slower": "1g.20gb",
        "no_advice": None,
        "memory_peak_bytes": 15e9,
        "activity_p95": 0.05,
        "activity_peak": 0.09,
        "gpu_hours_held": 31,
        "gpu_hours_beyond": pytest.approx(31 * 6 / 7),
        "cost_beyond": pytest.approx(31 * 12 / 7),
        "energy_kwh": 1,
        "evidence": [
            {"what": "memory peak", "value": 15e9, "query": "memory?", "time": 1.5},
            {"what": "activity p95", "value": 0.05, "query": "p95?", "time": 3},
            {"what": "activity peak", "value": 0.09, "query": "most?", "time": 2},
        ],
    }
    of_peaks = (
        "sufficient",
        "sufficient_if_slower",
        "memory_peak_bytes",
        "activity_p95",
        "gpu_hours_beyond",
        "cost_beyond",
    )
    assert [refused[name] for name in of_peaks] == [None] * len(of_peaks)
    assert (refused["no_advice"], refused["evidence"]) == (advices[4].refused, [])
    assert render_advice([], SPAN, "json") == '{\n  "advice": []\n}\n'


def test_advice_as_csv_has_a_row_for_each_workload() -> None:
    advices = several()
    rows = list(csv.DictReader(io.StringIO(render_advice([advices[0], advices[4]], SPAN, "csv"), newline="")))
    names = ("workload", "sufficient", "memory_peak_bytes", "cost_beyond")
    assert [rows[0][name] for name in names[:3]] == ["shop/saves-much", "1g.20gb", "15000000000.0"]
    assert [rows[1][name] for name in names] == ["shop/refused", "", "", ""]
    assert json.loads(rows[0]["evidence"])[0]["query"] == "memory?"
    assert render_advice([], SPAN, "csv") == "\r\n"
