"""One name of DCGM with two units: what a page's samples of DCGM_FI_DEV_GPU_UTIL_RATIO go on as."""

from collections.abc import Sequence

import pytest

from exporter.dcgm.dictionary import PREFIX, dictionary
from exporter.dcgm.fields import FIELDS
from exporter.errors import Trouble
from exporter.exposition.units import PERCENT, RATIO, SINCE_4_7, UtilizationUnit

LATER = 'DCGM_FI_DEV_FB_USED_BYTES{gpu="0",UUID="GPU-0"} 4.3e+09\n'


def page(values: Sequence[str], more: str = "") -> bytes:
    head = f"# HELP {RATIO.decode()} Use.\n# TYPE {RATIO.decode()} gauge\n"
    rows = [f'{RATIO.decode()}{{gpu="{gpu}",UUID="GPU-{gpu}"}} {value}\n' for gpu, value in enumerate(values)]
    return f'{head}{"".join(rows)}DCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="GPU-0"}} 33\n{more}'.encode()


def settled(*pages: bytes) -> tuple[bytes, list[Trouble]]:
    """What the last page of a source goes on as, and what is told of it."""
    unit, body, odd = UtilizationUnit(), b"", list[Trouble]()
    for each in pages:
        odd = []
        body = unit.settle(each, odd)
    return body, odd


# issue 22, line 36
@pytest.mark.parametrize("values", [["87", "0"], ["1", "100"], ["0", "2"]])
def test_use_in_percent_goes_on_under_the_name_that_is_in_percent(values: Sequence[str]) -> None:
    came = page(values)
    assert settled(came) == (came.replace(RATIO, PERCENT), [])
    field = FIELDS[PERCENT.decode()]
    assert (field.json, field.times, field.per) == ("gpu_utilization", 1, 1)


# issue 22, line 36
@pytest.mark.parametrize(
    ("values", "more"),
    [
        (["0.87", "1"], ""),
        (["1.02", "0"], ""),
        (["1.05", "0"], ""),
        (["0", "0"], ""),
        (["1", "1"], LATER),
        (["9223372036854775794"], ""),
        # what is no part of a GPU's use has no unit
        (["101", "0"], ""),
        (["-1", "0"], ""),
        (["N/A", "0"], ""),
        (["", "0"], ""),
    ],
)
def test_a_ratio_stays_as_it_came(values: Sequence[str], more: str) -> None:
    came = page(values, more)
    assert settled(came) == (came, [])


# issue 22, line 36
def test_what_cannot_be_told_is_not_converted_and_told() -> None:
    # one percent, or all of it
    body, odd = settled(page(["1", "0", "1 1700000000000"]))
    assert body == page(["NaN", "0", "NaN 1700000000000"])
    assert [each.reason for each in odd] == ["unit"]
    # a whole number of percent beside a fraction: no DCGM has both
    body, odd = settled(page(["87", "0.5", "0"]))
    assert body == page(["NaN", "NaN", "0"])
    assert [each.reason for each in odd] == ["unit"]
    assert settled(page(["1.06"]))[0] == page(["NaN"])
    # more than all of it, on a page of DCGM 4.7
    body, odd = settled(page(["87", "0.5"], LATER))
    assert body == page(["NaN", "0.5"], LATER)
    assert [each.reason for each in odd] == ["unit"]


# issue 22, line 36
def test_a_source_has_the_unit_that_it_has_shown() -> None:
    ambiguous = page(["1", "0"])
    assert settled(page(["87", "0"]), ambiguous) == (ambiguous.replace(RATIO, PERCENT), [])
    assert settled(page(["0.4", "0"]), ambiguous) == (ambiguous, [])
    # what has contradicted itself is not believed any more
    assert settled(page(["87", "0"]), page(["87", "0.5"]), ambiguous)[0] == page(["NaN", "0"])
    # an update of dcgm-exporter
    newer = page(["1", "0"], LATER)
    assert settled(page(["87", "0"]), newer) == (newer, [])


@pytest.mark.parametrize("body", [b"", b"DCGM_FI_DEV_GPU_UTIL 87\n", b"up 1\n"])
def test_a_page_without_the_name_is_the_same_object(body: bytes) -> None:
    assert UtilizationUnit().settle(body, []) is body


@pytest.mark.parametrize("line", [b"{", b"{}", b"{} x", b'{a="} 5"} 87', b'{a="b"}\t87', b" 87", b"{a"])
def test_a_page_of_any_form_is_settled(line: bytes) -> None:
    assert UtilizationUnit().settle(RATIO + line, [])


def test_no_dcgm_before_4_7_has_the_names_that_show_4_7() -> None:
    names = {PREFIX + name for name in dictionary().since("4.7.0")}
    shown = {name.decode() for name in SINCE_4_7}
    # fields of a lane, and others that the table lacks, come with these
    assert shown == (names & FIELDS.keys()) - {RATIO.decode()}
