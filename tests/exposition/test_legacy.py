"""`dcgm_gpu_health` beside `dcgm_xid_errors`."""

import pytest

from exporter.exposition import legacy
from exporter.exposition.check import MOST_LINES
from exporter.model.slices import at_once


def with_gpu_health(body: bytes) -> bytes:
    return at_once(legacy.with_gpu_health(body))


@pytest.mark.parametrize(
    ("xid", "health"), [("0", 0), ("31", 0), ("43", 0), ("45", 0), ("45.0", 0), ("13", 1), ("48", 1), ("79", 1)]
)
def test_health_follows_the_xid(xid: str, health: int) -> None:
    body = with_gpu_health(f'# TYPE dcgm_xid_errors gauge\ndcgm_xid_errors{{gpu="0",uuid="GPU-1"}} {xid}\n'.encode())
    lines = body.decode().splitlines()
    assert lines[:2] == ["# TYPE dcgm_xid_errors gauge", f'dcgm_xid_errors{{gpu="0",uuid="GPU-1"}} {xid}']
    assert "last XID" in lines[2]
    assert lines[3:] == ["# TYPE dcgm_gpu_health gauge", f'dcgm_gpu_health{{gpu="0",uuid="GPU-1"}} {health}']


def test_metadata_once_and_each_sample_its_own() -> None:
    body = with_gpu_health(b'dcgm_xid_errors{gpu="0"} 0\nother 1\ndcgm_xid_errors{gpu="1"} 48')
    assert body.count(b"# TYPE dcgm_gpu_health gauge\n") == 1
    assert body.endswith(b'other 1\ndcgm_xid_errors{gpu="1"} 48\ndcgm_gpu_health{gpu="1"} 1')


@pytest.mark.parametrize(
    "body",
    [
        b"DCGM_FI_DEV_XID_ERRORS{} 48\n",
        b"# HELP dcgm_xid_errors x\n",
        b"dcgm_xid_errors N/A\n",
        b"dcgm_xid_errors_total 48\n",
        b"dcgm_xid_errors 48\ndcgm_gpu_health 1\n",
        b"",
    ],
)
def test_other_pages_are_left_alone(body: bytes) -> None:
    assert with_gpu_health(body) == body


# issue 7, line 23
@pytest.mark.parametrize(
    "line",
    [
        b"dcgm_xid_errors" + b" " * 80_000,
        b"dcgm_xid_errors" + b" " * 40_000 + b"{" + b"} " * 20_000 + b"x",
        b"dcgm_xid_errors{" + b" }" * 40_000 + b"x",
        b"dcgm_xid_errors " + b"1" * 80_000 + b"x",
        b" " * 80_000 + b"dcgm_xid_errors",
    ],
    ids=["blanks", "blanks-and-braces", "braces", "digits", "before"],
)
def test_a_long_hostile_line_is_passed_without_backtracking(line: bytes) -> None:
    # quadratic time was 48 s here, and ten times that for ten of them
    assert with_gpu_health(b"\n".join([line] * 10)) == b"\n".join([line] * 10)


# issue 7, line 22
def test_a_large_page_is_worked_on_in_slices_of_whole_lines() -> None:
    lines = b"".join(b'dcgm_xid_errors{gpu="%d"} 48\n' % number for number in range(20_000))
    work = legacy.with_gpu_health(lines)
    next(work)
    assert at_once(work).count(b"} 48\ndcgm_gpu_health{") == 20_000 - 1  # before the first one its metadata


# issue 7, line 22
def test_a_page_does_not_get_longer_than_a_page_may_be() -> None:
    lines = b"".join(b'dcgm_xid_errors{gpu="%d"} 48\n' % number for number in range(MOST_LINES // 2 + 1))
    assert with_gpu_health(lines) == lines
    shorter = lines[: lines[:-1].rindex(b"\n") + 1]
    # a line for each line, and two for HELP and TYPE
    assert with_gpu_health(shorter).count(b"\n") == MOST_LINES + 2


# issue 7, line 22
def test_a_small_page_is_worked_on_at_once() -> None:
    with pytest.raises(StopIteration, match="dcgm_gpu_health"):
        next(legacy.with_gpu_health(b"dcgm_xid_errors 48\n"))
