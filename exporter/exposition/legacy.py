"""What NVIDIA's own pod-gpu-metrics-exporter added to its pages: `dcgm_gpu_health` beside `dcgm_xid_errors`.

For that old family and no other, so that alerts written for it go on working. It reads the value of a metric, which
the join never does: it comes before the join, and what it adds is joined like everything else.
"""

import re

from exporter.exposition.check import MOST_LINES
from exporter.exposition.slices import Work

SOURCE = b"dcgm_xid_errors"
HEALTH = b"dcgm_gpu_health"
# No XID at all; 31 and 43, which are faults of an application; 45, which is the clean-up after one
HARMLESS_XIDS = (0.0, 31.0, 43.0, 45.0)
_METADATA = (
    b"# HELP dcgm_gpu_health 1 if the last XID error of the GPU is a fault of the GPU, else 0;"
    b" the last XID stays until there is another or the driver is reloaded.\n"
    b"# TYPE dcgm_gpu_health gauge\n"
)
# No two repetitions that stand side by side take the same bytes: a line that does not match fails in linear time.
_XID_SAMPLE = re.compile(
    rb"^[ \t]*dcgm_xid_errors((?:[ \t]*\{.*\})?[ \t]+)([0-9]+(?:\.[0-9]+)?)[ \t]*\r?$", re.MULTILINE
)


_SLICE_BYTES = 256 * 1024


def with_gpu_health(body: bytes) -> Work[bytes]:
    """The page with a sample of `dcgm_gpu_health` after each of `dcgm_xid_errors`, labels alike. Works in slices.

    A page without the old family, or with a health of its own, is returned as it is; so is one that would get longer
    than a page may be.
    """
    if SOURCE not in body or HEALTH in body or body.count(SOURCE) + body.count(b"\n") > MOST_LINES:
        return body
    metadata = iter((_METADATA,))

    def beside(found: re.Match[bytes]) -> bytes:
        unhealthy = float(found[2]) not in HARMLESS_XIDS
        return b"%b\n%b%b%b%d" % (found[0], next(metadata, b""), HEALTH, found[1], unhealthy)

    pieces = []
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _SLICE_BYTES) + 1 or len(body)
        pieces.append(_XID_SAMPLE.sub(beside, body[start:end]))
        start = end
        if start < len(body):
            yield
    return b"".join(pieces)
