"""Of one moment, the page, `top` and `kubectl gpu` say the same of what a device and each of its holders does."""

import re
from collections.abc import Mapping, Sequence
from html import unescape
from typing import Any

import pytest

from exporter.dcgm.fields import METRICS
from exporter.kubectl import device_holders
from exporter.model.device_row import DeviceRow, DeviceUser, from_object
from exporter.model.slices import at_once
from exporter.outputs.page.device_table import devices_table
from exporter.outputs.page.view import PageView
from exporter.top.command import document
from exporter.top.shown_devices import shown_of
from exporter.top.state import State

GIB, BYTES = 1024, 2**30
WHOLE = {"gpu_utilization": 100, "graphics_engine_active": 0.31, "framebuffer_used": 8 * GIB, "power_usage": 300.0}


def row(pod: str = "", **fields: Any) -> DeviceRow:
    identity = {"node_name": "n", "model_name": "H100", "device": "nvidia0", "device_id": "0", "device_uuid": "GPU-0"}
    owner = {"pod": pod, "namespace": "ns" if pod else "", "container": "c" if pod else "", "gpu_shared": False}
    return from_object({**identity, **owner, **WHOLE, "temperature": 60, **fields})


def measured(ratio: float, gib: float) -> Mapping[str, Any]:
    return {"measured": {"utilization_ratio": ratio, "memory_used_bytes": int(gib * BYTES)}}


def shared(pod: str, **fields: Any) -> DeviceRow:
    return row(pod, gpu_shared=True, whole_device=WHOLE, **fields)


HALF = {"graphics_engine_active": 0.155, "framebuffer_used": 4 * GIB, "power_usage": 150.0}
PARENT: Mapping[str, Any] = dict.fromkeys(METRICS)


def instance(number: int, pod: str, watts: float, active: float = 0.5) -> DeviceRow:
    of_mig = {"entity": "mig", "mig_instance_id": str(number), "mig_profile": "1g.10gb", "gpu_utilization": None}
    return row(pod, **of_mig, graphics_engine_active=active, framebuffer_used=GIB, power_usage=watts)


# --- percent, GiB, W and °C of each output, by pod; "" is the line above several holders or instances -----------------


def number(text: str) -> float | None:
    match = re.match(r"[\d.]+", text)
    return float(match[0]) if match else None


def of_page(rows: Sequence[DeviceRow]) -> Mapping[str, Sequence[float | None]]:
    made, _ = at_once(devices_table(rows, PageView(fold="none"), with_node=False))
    lines = re.findall(r"<tr.*?</tr>", "".join(made), re.DOTALL)[1:]
    said = {}
    for line in lines:
        pairs = re.findall(r'<t[dh] [^>]*class="(\w+)"[^>]*>(.*?)</t[dh]>', line)
        cells = {name: unescape(re.sub("<[^>]*>", " ", cell)).strip() for name, cell in pairs}
        pod = "".join(cells["pod"].split()).removeprefix("ns/") if cells["pod"].startswith("ns") else ""
        said[pod] = [number(cells[name]) for name in ("utilisation", "memory", "power", "temperature")]
    return said


def of_top(rows: Sequence[DeviceRow]) -> Mapping[str, Sequence[float | None]]:
    said = {}
    for device in document(shown_of("cluster", "u", {}, rows, ""), State())["devices"]:
        names = ("utilization_percent", "memory_used_mib", "power_watts", "temperature_celsius")
        values = [device[name] for name in names]
        owners = device["owners"]
        said[owners[0]["pod"] if len(owners) == 1 else ""] = values
        if len(owners) > 1:
            said |= {of["pod"]: [of["utilization_percent"], of["memory_used_mib"], None, None] for of in owners}
        assert [of["idle"] for of in owners] == [each.state == "idle" for each in rows if _is(each, device)]
    return {pod: [values[0], values[1] and values[1] / GIB, *values[2:]] for pod, values in said.items()}


def _is(row_: DeviceRow, device: Mapping[str, Any]) -> bool:
    return bool(row_.pod) and row_.mig_instance_id == (device["mig_instance_id"] or "")


def of_kubectl(rows: Sequence[DeviceRow]) -> Mapping[str, Sequence[float | None]]:
    held = [each for each in rows if each.pod]
    _, *lines = device_holders.table(held, rows).splitlines()
    words = [re.split(" {2,}", line) for line in lines[: len(held)]]
    return {each[3].removeprefix("ns/"): [number(each[6]), number(each[7])] for each in words}


def rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 1) for value in values]


# issue 22, line 30
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        pytest.param([row("a")], {"a": [31, 8, 300, 60]}, id="alone: GR_ENGINE_ACTIVE, which its state is made of"),
        pytest.param([row("a", graphics_engine_active=None)], {"a": [100, 8, 300, 60]}, id="no GR_ENGINE_ACTIVE"),
        pytest.param([row("a", **measured(0.03, 8))], {"a": [3, 8, 300, 60]}, id="alone and measured"),
        pytest.param([shared("a")], {"a": [31, 8, 300, 60]}, id="alone on a share"),
        pytest.param(
            [shared("a"), shared("b")],
            {"": [31, 8, 300, 60], "a": [None] * 4, "b": [None] * 4},
            id="shared, copied, not measured",
        ),
        pytest.param(
            [shared("a", **HALF), shared("b", **HALF)],
            {"": [31, 8, 300, 60], "a": [None] * 4, "b": [None] * 4},
            id="shared, split, not measured",
        ),
        pytest.param(
            [shared("a", **measured(0.01, 2)), shared("b", **measured(0.3, 6))],
            {"": [31, 8, 300, 60], "a": [1, 2, None, None], "b": [30, 6, None, None]},
            id="shared and measured",
        ),
        pytest.param(
            [shared("a", **measured(0.01, 2)), shared("b")],
            {"": [31, 8, 300, 60], "a": [1, 2, None, None], "b": [None] * 4},
            id="one of them measured",
        ),
        pytest.param(
            [row(**PARENT, entity="mig-parent"), instance(1, "a", 158), instance(2, "b", 158, 0.01)],
            {"": [None, 2, 158, 60], "a": [50, 1, None, 60], "b": [1, 1, None, 60]},
            id="MIG, copied: the GPU draws it",
        ),
        pytest.param(
            [
                row(**PARENT, entity="mig-parent", whole_device={"power_usage": 158.0}),
                *(instance(1, "a", 79), instance(2, "b", 79, 0.01)),
            ],
            {"": [None, 2, 158, 60], "a": [50, 1, None, 60], "b": [1, 1, None, 60]},
            id="MIG, split in two parts that are alike",
        ),
        pytest.param(
            [instance(1, "a", 100), instance(2, "b", 58)],
            {"": [None, 2, 158, 60], "a": [50, 1, None, 60], "b": [50, 1, None, 60]},
            id="MIG, split, and no object of the GPU",
        ),
    ],
)
def test_what_is_the_whole_devices_is_never_shown_as_a_holders(
    rows: Sequence[DeviceRow], said: Mapping[str, Sequence[float | None]]
) -> None:
    page, top, kubectl = (of(rows) for of in (of_page, of_top, of_kubectl))
    assert {pod: rounded(values) for pod, values in page.items()} == said
    assert {pod: rounded(values) for pod, values in top.items()} == said
    assert {pod: rounded(values) for pod, values in kubectl.items()} == {
        pod: values[:2] for pod, values in said.items() if pod
    }


# issue 22, line 13
def test_the_figure_beside_a_state_is_the_one_that_it_is_made_of() -> None:
    idle = row("a", **measured(0.03, 8), gpu_utilization=62, graphics_engine_active=0.61, power_usage=479.0)
    assert idle.state == "idle"
    assert rounded(of_page([idle])["a"]) == [3, 8, 479, 60]
    made, _ = at_once(devices_table([idle], PageView(), with_node=False))
    assert '<tr role="row" class="gpu idle older"' in "".join(made)
    assert 'held but idle</span> <span class="badge before">before</span>' in "".join(made)
    busy = row("a", **measured(0.9, 8), gpu_utilization=2, graphics_engine_active=0.02)
    (device,) = document(shown_of("node", "u", {}, [busy], ""), State())["devices"]
    assert (device["state"], device["older"], device["utilization_percent"]) == ("used", True, 90)
    # a neighbour's use of a shared GPU contradicts nothing, and neither does a page that says the same
    for fine in (shared("a", **measured(0.03, 8)), row("a", **measured(0.4, 8)), row("a"), row()):
        made, _ = at_once(devices_table([fine], PageView(), with_node=False))
        assert ' older"' not in "".join(made)


# issue 22, line 13
@pytest.mark.parametrize(
    ("ratios", "of_page", "is_older"),
    [
        pytest.param((0.02, 0.03), 0.55, True, id="idle, and the page says 55 %"),
        pytest.param((0.9, 0.0), 0.03, True, id="one works, and the page says idle"),
        pytest.param((0.04, 0.04), 0.08, False, id="each is idle, and together they are not"),
        pytest.param((0.9, 0.8), 1.0, False, id="both work"),
        pytest.param((0.02, None), 0.55, False, id="one is not measured"),
    ],
)
def test_the_line_of_a_shared_gpu_says_that_its_figures_are_older(
    ratios: Sequence[float | None], of_page: float, is_older: bool
) -> None:
    whole = {**WHOLE, "graphics_engine_active": of_page}
    rows = [
        row(pod, gpu_shared=True, **{**WHOLE, "whole_device": whole}, **({} if ratio is None else measured(ratio, 8)))
        for pod, ratio in zip("ab", ratios, strict=True)
    ]
    made, _ = at_once(devices_table(rows, PageView(fold="none"), with_node=False))
    line, *holders = re.findall(r"<tr.*?</tr>", "".join(made), re.DOTALL)[1:]
    assert (" before" in line.partition(">")[0], "badge before" in line) == (is_older, is_older)
    assert "badge before" not in "".join(holders)
    (device,) = document(shown_of("node", "u", {}, rows, ""), State())["devices"]
    assert device["older"] is is_older
    # what somebody else does there is no contradiction
    others = [each._replace(used_by=(DeviceUser(pod="x", namespace="ml"),)) for each in rows]
    made, _ = at_once(devices_table(others, PageView(fold="none"), with_node=False))
    assert "badge before" not in "".join(made)
