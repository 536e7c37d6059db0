"""promtool, the real one, on what the exporter serves."""

import re
from pathlib import Path

import pytest

from exporter.exposition.join import Joiner
from exporter.model.devices import Owners
from exporter.ownership.labels import LabelPolicy
from exporter.ownership.sample_rows import Attribution
from tests.end_to_end.generated import joined_pages, valid_pages
from tests.support.components import LINT, check
from tests.support.exporter import Start

pytestmark = pytest.mark.real

# gpu-manager's gauges and labels are named so
NOT_OURS_TO_CHANGE = re.compile(r"^(?:DCGM_|dcgm_|pod_gpu_info |container_gpu_memory_total )")


@pytest.mark.parametrize("path", ["/gpu/metrics", "/metrics", "/metric", "/metrics/nodes"])
async def test_what_is_served(promtool: Path, start: Start, path: str) -> None:
    exporter = await start()
    _, page = await exporter.get(path)
    code, complaints = check(promtool, page.encode())
    assert code in (0, LINT), complaints
    assert [line for line in complaints if not NOT_OURS_TO_CHANGE.match(line)] == []


async def test_the_metrics_of_a_node_without_any_source(promtool: Path, start: Start) -> None:
    exporter = await start(kubelet_socket="/no/such/kubelet.sock", dcgm_url="http://127.0.0.1:1/metrics")
    _, page = await exporter.get("/metrics")
    assert check(promtool, page.encode()) == (0, [])


def test_generated_pages_parse(promtool: Path) -> None:
    """Broken lines, odd values and clashing metadata went in; what came out parses, all of it."""
    pages = joined_pages(50)
    assert len(pages) > 30
    for page in pages:
        code, complaints = check(promtool, page.body)
        assert code in (0, LINT), (page.body, complaints)


def test_a_page_that_promtool_accepts_changes_by_added_labels_alone(promtool: Path) -> None:
    policy, added = LabelPolicy(idle_labels=False), b'pod="",namespace="",container=""'
    idle = LabelPolicy()
    for page in valid_pages(25):
        code, complaints = check(promtool, page)
        assert code in (0, LINT), (page, complaints)
        for labels in (policy, idle):
            joiner = Joiner(
                read_subject=labels.read_subject, is_owner_label=labels.is_owner_label, wanted=lambda _: True
            )
            joined = joiner.join([page], Attribution(Owners(), labels))
            assert joined.body.replace(b"," + added, b"").replace(b"{%b}" % added, b"") == page
            assert dict(joined.rejected) == {}


def test_promtool_would_have_said_no(promtool: Path) -> None:
    assert check(promtool, b'a{b="\\d"} 1\n')[0] == 1
