"""What is taken of a page that a found pod brings."""

import pytest

from exporter.exposition.gpu_families import only_gpu_families
from tests.support.places import DATA

KEPT = b'# HELP DCGM_FI_X x\n# TYPE DCGM_FI_X gauge\nDCGM_FI_X{gpu="0"} 1\ndcgm_gpu_temp 2\n'


# issue 7, line 27
@pytest.mark.parametrize("name", ["1.prom", "3.prom", "4.8.prom", "4.9.prom", "mig.prom", "virtual.prom"])
def test_dcgm_exporters_own_pages_are_whole(name: str) -> None:
    page = (DATA / "pages" / name).read_bytes()
    assert only_gpu_families(page) is page


# issue 7, line 27
@pytest.mark.parametrize(
    "other",
    [
        b"up 1\n",
        b'kube_pod_info{pod="DCGM_FI_X"} 1\n',
        b"# TYPE up gauge\n",
        b"# HELP up DCGM_FI_X\n",
        b"# a comment\n",
        b"\n",
        b" \t up 1\n",
        b'{"DCGM_FI_Y"} 1\n',
        b"XDCGM_FI_X 1\n",
        b"DCGMX 1\n",
        b"\r\n",
    ],
)
def test_what_is_not_dcgm_exporters_is_left_out(other: bytes) -> None:
    lines = KEPT.splitlines(keepends=True)
    for place in range(len(lines) + 1):
        assert only_gpu_families(b"".join([*lines[:place], other, *lines[place:]])) == KEPT
    assert only_gpu_families(KEPT + other.rstrip(b"\n")).rstrip(b"\n") == KEPT.rstrip(b"\n")
    assert only_gpu_families(other) == b""


def test_no_page_and_a_missing_last_newline() -> None:
    assert only_gpu_families(b"") == b""
    assert only_gpu_families(KEPT[:-1]) == KEPT[:-1]
