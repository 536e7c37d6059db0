"""One vocabulary: an object of /container/metrics has the same state in JSON, on the page, in `top` and in the docs."""

import json
import re
from typing import Any

import pytest

from exporter.model.device_row import from_object, in_its_state
from exporter.model.health import VERDICTS
from exporter.model.slices import at_once
from exporter.model.states import WORDS, DeviceState
from exporter.outputs.page.device_table import TITLES
from exporter.outputs.page.tree import figures_of
from exporter.top.columns import UNICODE
from exporter.top.command import document
from exporter.top.screen import draw
from exporter.top.shown_devices import ShownDevice, shown_of
from exporter.top.state import State, chosen_devices
from tests.support.places import ROOT

BUSY, QUIET = {"gpu_utilization": 5.0}, {"gpu_utilization": 4.9}
HELD = {"namespace": "ns", "pod": "p", "container": "c"}
BEFORE = {"holder_since": "2026-11-01T12:00:05.000Z", "read_at": "2026-11-01T12:00:00.000Z"}
USER = {"namespace": "ml", "pod": "x", "container": "c", "memory_used_bytes": 2**30}
KUBELET = "the kubelet does not answer"


# what the object has, what hides its holder; its state, `held` of top --json, and what top has in the pod's place
@pytest.mark.parametrize(
    ("fields", "why", "state", "held", "shown"),
    [
        (HELD | BUSY, "", "used", "held", "ns/p"),
        (HELD | QUIET, "", "idle", "held", "ns/p"),
        (HELD, "", "held", "held", "ns/p"),
        (HELD | BUSY | BEFORE, "", "held", "held", "ns/p"),
        (HELD | QUIET | {"health": "failing"}, "", "idle", "held", "ns/p"),
        (BUSY | {"gpu_shared": True}, "", "used", "held", "held (shared by several)"),
        (QUIET, "", "free", "free", "free"),
        ({}, "", "free", "free", "free"),
        (BUSY | BEFORE, "", "free", "free", "free"),
        (BUSY, "", "outside", "outside", "used outside Kubernetes"),
        (QUIET | {"used_by": [USER]}, "", "outside", "outside", "used outside Kubernetes"),
        (BUSY | {"health": "failing"}, "", "outside", "outside", "used outside Kubernetes"),
        (QUIET | {"health": "gone"}, "", "failing", "failing", "broken"),
        (QUIET | {"health": "degraded"}, "", "free", "free", "free"),
        (BUSY, KUBELET, "unknown", "unknown", f"holder unknown ({KUBELET})"),
        (QUIET | {"entity": "mig-parent"}, "", "cut", "cut", "0 MIG instances"),
    ],
)
def test_a_device_has_one_state_on_every_output(
    fields: dict[str, Any], why: str, state: str, held: str, shown: str
) -> None:
    row = in_its_state(
        from_object({"node_name": "n", "device_id": "0", "device_uuid": "GPU-0", **fields}), why_unknown=why
    )
    assert row.state == state
    top = shown_of("node", "u", {"settings": {}}, [row], "")
    (device,) = document(top, State())["devices"]
    assert (device["state"], device["held"]) == (state, held)
    summary, *_ = lines = ["".join(span.text for span in line) for line in draw(top, State(), 160, UNICODE).lines]
    assert [line for line in lines if f" {shown}" in line and line.startswith("0")], lines
    page = at_once(figures_of([row]))
    for each in ("idle", "free", "failing", "outside", "unknown"):
        is_it = int(state == each)
        assert (top.counts[each], page[each]) == (is_it, is_it)
        if is_it:
            assert f"1 {WORDS[DeviceState(each)]}" in summary
            assert TITLES[each].startswith(WORDS[DeviceState(each)])
    assert top.counts["held"] == page["held"] == int(held == "held")


def test_the_filter_of_top_knows_a_state_by_its_words() -> None:
    for state, words in WORDS.items():
        devices = [ShownDevice(node="n", gpu="0", uuid="GPU-0", state=each) for each in DeviceState]
        for typed in (state, words):
            assert state in {each.state for each in chosen_devices(devices, State(filter=typed))}


# issue 22, line 15
def test_a_word_stands_for_one_thing() -> None:
    assert len({*WORDS.values()}) == len(WORDS)
    # the sum of three, and verdicts on a device's health
    assert not {*WORDS.values()} & {"held", *VERDICTS}
    assert TITLES["held"] == "held"


# issue 22, line 15
def test_the_docs_have_each_state_by_its_words() -> None:
    table = (ROOT / "docs/endpoints.md").read_text().partition("\n## States\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w ,]+) \|", table, re.MULTILINE)
    assert dict(rows[1:]) == {str(state): words for state, words in WORDS.items()}
    page = (ROOT / "docs/dashboards.md").read_text()
    assert "](endpoints.md#states)" in page.partition("\n### The words\n")[2]
    assert all(f"**{verdict}**" in page for verdict in VERDICTS)
    openapi = json.loads((ROOT / "exporter/outputs/openapi.json").read_text())
    text = json.dumps(openapi)
    assert all(f"{state}: " in text for state in DeviceState)
