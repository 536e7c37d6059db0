"""`dcgm_gpu_health` beside `dcgm_xid_errors`."""

import pytest

from exporter.exposition.legacy import with_gpu_health


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
