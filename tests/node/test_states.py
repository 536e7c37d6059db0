"""What a device is said to be (held, idle, free …) while its hands and its page change, on every output alike."""

import json
from functools import partial
from typing import Any

from aiohttp import web

from tests.support.exporter import Exporter, Start
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode
from tests.support.waiting import until

UUID = "GPU-00000000-1111-2222-3333-444455556666"


class Gpu:
    """One GPU whose page says what it is told to, held by the pod of a name or by nobody; another pod holds none."""

    def __init__(self, simulated: SimulatedNode) -> None:
        self._simulated, self.percent = simulated, 0
        simulated.dcgm.failure = lambda _: web.Response(
            text=f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{UUID}"}} {self.percent}\n'
        )

    def hold(self, name: str) -> None:
        devices = ((GPU_RESOURCE, UUID),) if name else ()
        self._simulated.world.pods = (
            Pod(namespace="n", name=name or "idler", containers=(Container(name="c", devices=devices),)),
        )


async def device(exporter: Exporter, pod: str) -> dict[str, Any]:
    """The GPU's object, once it is this pod's."""

    async def its() -> dict[str, Any] | None:
        _, text = await exporter.get("/container/metrics")
        row: dict[str, Any]
        (row,) = json.loads(text)
        return row if row["pod"] == pod else None

    row: dict[str, Any] | None = await until(its)
    assert row is not None
    return row


# issue 15, line 25
async def test_values_of_the_holder_before_are_nobodys_state(start: Start, simulated: SimulatedNode) -> None:
    gpu = Gpu(simulated)
    gpu.percent = 92
    gpu.hold("first")
    exporter = await start(accounting_mode="off", kubelet_max_age="0s")
    row = await device(exporter, "first")
    assert (row["state"], row["holder_since"]) == ("used", None)
    gpu.hold("")
    row = await device(exporter, "")
    assert (row["state"], row["gpu_utilization"]) == ("free", 92), "not used outside Kubernetes"
    assert row["holder_since"] >= row["read_at"]
    _, html = await exporter.get("/")
    assert '<span class="badge before">before</span>' in html
    gpu.hold("second")
    row = await device(exporter, "second")
    assert row["state"] == "held", "what it does is not known yet"
    gpu.percent = 1
    assert await until(lambda: _state(exporter)) == "idle"
    row = await device(exporter, "second")
    assert row["holder_since"] < row["read_at"]
    gpu.hold("")
    gpu.percent = 90
    row = await device(exporter, "")
    gpu.percent = 91
    assert await until(lambda: _state(exporter, "outside")) == "outside"


async def _state(exporter: Exporter, wanted: str = "idle") -> str:
    _, text = await exporter.get("/container/metrics")
    (row,) = json.loads(text)
    return str(row["state"]) if row["state"] == wanted else ""


async def test_what_rules_count_as_held_and_idle_is_what_the_state_says(start: Start, simulated: SimulatedNode) -> None:
    """Rules, alerts and dashboards count these families; all else counts states."""
    gpu = Gpu(simulated)
    exporter = await start(kubelet_max_age="0s", accounting_interval="1s")
    counted = ("", False, False)

    async def is_said(expected: tuple[str, bool, bool]) -> bool:
        nonlocal counted
        _, text = await exporter.get("/container/metrics")
        (row,) = json.loads(text)
        _, metrics = await exporter.get("/metrics")
        held, idle = ("\npod_gpu_allocated_ratio{", "\npod_gpu_idle_since_timestamp_seconds{")
        counted = (row["state"], held in metrics, idle in metrics)
        return counted == expected

    for pod, percent, state in (
        ("p", 50, "used"),
        ("p", 4, "idle"),
        ("p", 5, "used"),
        ("", 4, "free"),
        ("", 50, "outside"),
    ):
        gpu.hold(pod)
        gpu.percent = percent
        expected = (state, bool(pod), state == "idle")
        await until(partial(is_said, expected), why=lambda: counted)


# issue 15, line 25
async def test_page_and_objects_heed_what_idle_is_set_to(start: Start, simulated: SimulatedNode) -> None:
    gpu = Gpu(simulated)
    gpu.percent = 30
    gpu.hold("p")
    for idle_below, state in (("0.05", "used"), ("0.5", "idle")):
        exporter = await start(accounting_idle_below=idle_below)
        assert (await device(exporter, "p"))["state"] == state
        _, html = await exporter.get("/")
        assert ("held but idle</span>" in html) is (state == "idle")


# issue 15, line 25
async def test_without_the_kubelet_devices_are_unknown_and_not_free(start: Start, simulated: SimulatedNode) -> None:
    Gpu(simulated)
    exporter = await start(kubelet_socket="/nonexistent/kubelet.sock")
    row = await device(exporter, "")
    assert (row["state"], row["state_reason"]) == ("unknown", "the kubelet has not answered yet")
    _, html = await exporter.get("/")
    assert 'id="figure-unknown">1<' in html
    assert 'id="figure-free">0<' in html
