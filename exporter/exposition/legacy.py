"""The family `dcgm_gpu_health`, which NVIDIA's own pod-gpu-metrics-exporter added beside `dcgm_xid_errors`.

Alerts written for that exporter need it. The family depends on the value of a metric, and the join never reads values.
So it is added before the join, which treats its samples like all others.
"""

import re

from exporter.exposition.check import MOST_LINES
from exporter.model.slices import Work

SOURCE = b"dcgm_xid_errors"
HEALTH = b"dcgm_gpu_health"
# 0 is no XID; 31 and 43 are faults of an application; 45 is the clean-up after such a fault
HARMLESS_XIDS = (0.0, 31.0, 43.0, 45.0)
_METADATA = (
    b"# HELP dcgm_gpu_health 1 if the last XID error of the GPU is a fault of the GPU, else 0;"
    b" the last XID stays until there is another or the driver is reloaded.\n"
    b"# TYPE dcgm_gpu_health gauge\n"
)
# No two neighbouring repetitions take the same bytes, so a line that does not match fails in linear time.
_XID_SAMPLE = re.compile(
    rb"^[ \t]*dcgm_xid_errors((?:[ \t]*\{.*\})?[ \t]+)([0-9]+(?:\.[0-9]+)?)[ \t]*\r?$", re.MULTILINE
)


_SLICE_BYTES = 256 * 1024


def with_gpu_health(body: bytes) -> Work[bytes]:
    """The page with a sample of `dcgm_gpu_health` after each sample of `dcgm_xid_errors`, with the same labels.

    The page is returned unchanged if it lacks `dcgm_xid_errors`, has a `dcgm_gpu_health` already, or would get more
    lines than a page may have. Works in slices.
    """
    if SOURCE not in body or HEALTH in body or body.count(SOURCE) + body.count(b"\n") > MOST_LINES:
        return body
    metadata = iter((_METADATA,))

    def beside(sample: re.Match[bytes]) -> bytes:
        unhealthy = float(sample[2]) not in HARMLESS_XIDS
        return b"%b\n%b%b%b%d" % (sample[0], next(metadata, b""), HEALTH, sample[1], unhealthy)

    pieces = []
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + _SLICE_BYTES) + 1 or len(body)
        pieces.append(_XID_SAMPLE.sub(beside, body[start:end]))
        start = end
        if start < len(body):
            yield
    return b"".join(pieces)
