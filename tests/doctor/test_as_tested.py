"""`doctor --conformance` beside TestAcceleratorPerformanceMetrics, the automated test that a platform runs."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.doctor.as_tested import questions
from exporter.doctor.conformance import judge
from tests.doctor.test_conformance import FIRST, ONE, SECOND, device
from tests.node.test_names import SETTINGS, Exporter
from tests.support.ai_conformance import LABELS, PARTS, passes
from tests.support.places import DATA

PAGES = sorted((DATA / "pages").glob("*.prom")) + sorted((DATA / "vendors").glob("*.prom"))
CANDIDATES = {
    "utilization": ["DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_DEV_GPU_UTIL"],
    "memory": ["DCGM_FI_DEV_FB_USED", "gpu_used_vram"],
}
# what dcgm-exporter measures of an instance: nothing whose name says "util"
OF_INSTANCES = (
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_PROF_PCIE_TX_BYTES",
)  # fmt: skip
FLAG = "-metrics-utilization-metric=DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def page_of(*families: str, labels: tuple[str, ...] = (FIRST, SECOND)) -> str:
    return "".join(f"{family}{{{each}}} 0.5\n" for family in families for each in labels)


def evidence(text: str, own: str = "", **found: object) -> tuple[str, str, str, Mapping[str, object]]:
    """Status, reason, remedy and what was seen, of a GPU in two instances."""
    seen = [device("GPU-1", "1"), device("GPU-1", "2")]
    mapping = {"seen": seen, "assigned": [], "inventory": {"gpus": []}, "processes_of_nobody": {}, **found}
    pages = {"mapping.json": json.dumps(mapping), "gpu-metrics.prom": text, "metrics.prom": own}
    of_pages = judge("http://x", {name: body.encode() for name, body in pages.items()})
    (metrics,) = [each for each in of_pages if each.id == "accelerator_metrics"]
    return metrics.status, metrics.why, metrics.remedy, metrics.seen


# issue 22, line 38
@pytest.mark.parametrize("names", SETTINGS)
def test_a_page_of_instances_alone_is_judged_as_the_automated_test_does(names: str) -> None:
    text = Exporter(names).page(page_of(*OF_INSTANCES)).body.decode()
    status, why, remedy, _ = evidence(text)
    if passes(text, "utilization"):
        assert names in ("4.9", "both")
        assert (status, remedy) == ("Implemented", "")
        return
    assert names in ("as-is", "4.8")
    assert status == "Partially Implemented"
    assert "utilization" in why
    assert '"util"' in why
    assert FLAG in remedy
    assert passes(text, "utilization", flag=FLAG.partition("=")[2])
    assert "-metrics-memory-metric" not in remedy  # it finds that by itself


# issue 22, line 38
def test_what_is_missing_too_is_said_beside_it() -> None:
    status, why, remedy, _ = evidence(page_of(*OF_INSTANCES[:3]))
    assert status == "Partially Implemented"
    assert "missing: temperature" in why
    assert '"util"' in why
    assert FLAG in remedy
    assert "have dcgm-exporter measure DCGM_FI_DEV_GPU_TEMP" in remedy


# issue 22, line 38
def test_the_evidence_says_what_the_test_finds_on_both_pages() -> None:
    own = 'pod_gpu_utilization_ratio{UUID="GPU-1"} 0.5\n'
    seen = evidence(page_of(*OF_INSTANCES), own)[3]["automated_test"]
    assert isinstance(seen, dict)
    of_page, of_own = seen["/gpu/metrics"], seen["/metrics"]
    assert [(each["asks"], each["pass"]) for each in of_page][:2] == [("utilization", False), ("memory", True)]
    assert [(each["asks"], each["pass"]) for each in of_own][:2] == [("utilization", True), ("memory", False)]
    assert of_page[0]["flag"] == FLAG
    assert of_page[1]["families"] == {"DCGM_FI_DEV_FB_USED": 2}
    assert {each["asks"]: each["pass"] for each in of_page[2:]} == {
        "temperature": True,
        "power": True,
        "interconnect bandwidth": True,
    }


# issue 22, line 38
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
@pytest.mark.parametrize("names", SETTINGS)
def test_recorded_pages_are_judged_as_the_automated_test_does(names: str, path: Path) -> None:
    text = Exporter(names).page(path.read_text()).body.decode()
    agree(text)


def agree(text: str) -> None:
    for question in questions(text.encode(), CANDIDATES)[:2]:
        assert question.is_passed == passes(text, question.quantity), question
        if question.flag:
            name = question.flag.partition("=")[2]
            assert not question.is_passed
            assert passes(text, question.quantity, flag=name)
        elif not question.is_passed:
            assert not any(passes(text, question.quantity, flag=name) for name in CANDIDATES[question.quantity])


NAMES = st.sampled_from([*CANDIDATES["utilization"], *CANDIDATES["memory"], "x_mem_used", "up"])
LABEL_NAMES = st.sampled_from([*LABELS, "gpu_uuid", "GPU_UUID", "pod"])
TEXTS = st.sampled_from(["", " ", "0", "a,gpu=", 'a\\"b', "}", "\\\\"])
VALUES = st.sampled_from(["1", "NaN", "nan", "+Inf", "9223372036854775794", "-0.5e3", "1 1700000000000"])
LINES = st.builds(
    lambda name, labels, value: (
        f"{name}{{{','.join(f'{label}={chr(34)}{text}{chr(34)}' for label, text in labels.items())}}} {value}"
    ),
    NAMES,
    st.dictionaries(LABEL_NAMES, TEXTS, max_size=3),
    VALUES,
)


# issue 22, line 38
@given(st.lists(LINES, max_size=4))
def test_any_page_is_judged_as_the_automated_test_does(lines: list[str]) -> None:
    agree("".join(f"{line}\n" for line in lines))


# issue 22, line 38
def test_a_metric_without_a_label_that_counts_has_no_flag() -> None:
    (utilization, *_) = questions(b'DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu_uuid="a",gpu=""} 0.5\n', CANDIDATES)
    assert (utilization.is_passed, utilization.flag) == (False, "")
    assert PARTS["utilization"] == list(utilization.looks_for)


def test_a_whole_gpu_needs_no_flag() -> None:
    text = page_of("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", labels=(ONE,))
    assert [(each.is_passed, each.flag) for each in questions(text.encode(), CANDIDATES)[:2]] == [(True, "")] * 2
