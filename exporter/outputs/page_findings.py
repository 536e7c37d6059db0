"""What `doctor` says of pages: what DCGM they are of, and what became of their samples.

Tests: tests/doctor/test_doctor.py.
"""

from collections.abc import Iterator

from exporter.exposition.lines import Reason
from exporter.exposition.series import MOST_DEVICES
from exporter.model.snapshot import Snapshot, seen_devices
from exporter.outputs.diagnosis import Finding, fine, problem, warning

_ONE_EXPORTER_A_PAGE = "name each dcgm-exporter's own page with --dcgm.url, not one that puts several together"


def of_generations(snapshot: Snapshot) -> Iterator[Finding]:
    """What generation of DCGM each page can be of, by its names, labels and values."""
    for name, generation in (snapshot.page_generations or {}).items():
        if generation.contradicts:
            yield warning(name, f"its page is of {generation.says()}", _ONE_EXPORTER_A_PAGE)
        elif generation.says():
            yield fine(name, f"its page is of {generation.says()}")


def of_joined(snapshot: Snapshot) -> Iterator[Finding]:
    """The page that is made of all pages, and the lines that it lacks."""
    joined = snapshot.joined
    if joined is None:
        return
    seen = seen_devices(snapshot)
    own = joined.rejected.get(Reason.RESERVED_NAME, 0)
    if own and not seen:
        yield problem(
            "page",
            "the page is an exporter's own: it has families named pod_gpu_exporter_…, and no GPU",
            "name dcgm-exporter's port, not this program's, with --dcgm.url; both are 9400 by default",
        )
    elif not seen:
        yield problem(
            "page",
            "no sample carries a GPU's UUID",
            "is this dcgm-exporter's page? Labels of other names are named with --device-rules",
        )
    else:
        yield fine("page", f"{joined.sample_count} samples of {len(seen)} devices")
    if joined.unread:
        yield warning(
            "page",
            f"{joined.unread} samples are of devices beyond the first {MOST_DEVICES} of their page: they go out as"
            " they came, and have no owner, account or row of their own",
            "no node has that many GPUs: name the page of this node's dcgm-exporter, not that of a cluster",
        )
    rejected = {reason: count for reason, count in joined.rejected.items() if reason != Reason.RESERVED_NAME}
    if rejected:
        what = ", ".join(f"{count} for {reason}" for reason, count in sorted(rejected.items()))
        yield warning("page", f"lines, or parts of lines, were left out: {what}")
