"""Pushes by OTLP through the whole node role, to a receiver that answers as it is told."""

import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from exporter.node import pushing
from tests.node.test_vendors import CASES, HOLDER, Case, VendorNode
from tests.support.components import free_port
from tests.support.exporter import Exporter, Start
from tests.support.otlp import Receiver, expected_of, expected_of_accounts, points_in, receiving, values_in
from tests.support.places import DATA, ROOT
from tests.support.simulated import SimulatedNode, World
from tests.support.waiting import is_quick, until

FACTS = json.loads((DATA / "opentelemetry" / "conventions.json").read_text())
# of a page's values: what is not one of them
MADE = {"hw.status", "hw.gpu.io"}
# what the program adds to what a metric of the conventions has
COMMON = {
    *("hw.id", "hw.name", "hw.model", "hw.vendor", "hw.type", "hw.parent"),
    *("hw.driver_version", "hw.serial_number"),
}


@pytest.fixture
async def simulated() -> AsyncIterator[SimulatedNode]:
    """A node whose dcgm-exporter answers from its cache: one page for all looks."""
    node = SimulatedNode(World(gpus=4, shared=1, mig=1, seed=7), counters="full", collect_seconds=3600.0)
    await node.start()
    yield node
    await node.stop()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as made:
        yield made


@pytest.fixture
def push(start: Start, receiver: Receiver) -> Callable[..., Awaitable[Exporter]]:
    """Start an exporter that pushes to the receiver."""

    async def run(**settings: Any) -> Exporter:
        quick = {"otlp_interval": "50ms", "accounting_interval": "100ms"}
        return await start(**{"otlp_endpoint": receiver.url, **quick, **settings})

    return run


async def counted(exporter: Exporter, of: str = "pushes") -> dict[str, int]:
    """The program's own counters of pushes, or of their points."""
    _, text = await exporter.get("/metrics")
    rows = re.findall(rf'^pod_gpu_exporter_otlp_{of}_total\{{result="(\w+)"\}} (\d+)$', text, re.MULTILINE)
    return {result: int(count) for result, count in rows}


async def until_counted(exporter: Exporter, result: str, least: int = 1) -> None:
    async def is_counted() -> bool:
        return (await counted(exporter))[result] >= least

    await until(is_counted)


def sums(receiver: Receiver) -> dict[str, float]:
    """The GPU-seconds of the last push, by container and device."""
    return {
        str(sorted(point.attributes.items())): point.value
        for point in points_in(receiver.requests[-1])
        if point.name == "pod_gpu.allocated"
    }


# issue 17, Must show 3
@pytest.mark.parametrize(("names", "sharing"), [("as-is", "split"), ("4.9", "copy"), ("both", "device")])
async def test_every_value_is_the_pages(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver, names: str, sharing: str
) -> None:
    exporter = await push(families_names=names, sharing=sharing)
    page = expected_of(await exporter.page())
    before = len(receiver.requests)
    await until(lambda: len(receiver.requests) > before + 1)
    pushed = {key: value for key, value in values_in(receiver.requests[-1]).items() if key[0].startswith("hw.")}
    hardware = {key: value for key, value in pushed.items() if key[0] not in MADE}
    assert hardware == pytest.approx(page, rel=1e-15)


async def test_without_owners_on_the_page_its_points_have_none(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver
) -> None:
    exporter = await push(labels_owners="off")
    page = expected_of(await exporter.page())
    before = len(receiver.requests)
    await until(lambda: len(receiver.requests) > before + 1)  # the one under way may be of an earlier look
    values = values_in(receiver.requests[-1])
    hardware = {key: value for key, value in values.items() if key[0].startswith("hw.") and key[0] not in MADE}
    assert hardware == pytest.approx(page, rel=1e-15)
    assert any("k8s.pod.name" in dict(of) for name, of in values if name == "pod_gpu.allocated")


# issue 17, Must show 3
async def test_every_account_is_that_of_metrics(push: Callable[..., Awaitable[Exporter]], receiver: Receiver) -> None:
    # beats are so far apart that both show the accounts of the first one
    exporter = await push(accounting_interval="1h")
    text = await exporter.until("/metrics", lambda text: "pod_gpu_allocated_seconds_total{" in text)
    before = len(receiver.requests)
    await until(lambda: len(receiver.requests) > before + 1)
    accounts = {key: value for key, value in values_in(receiver.requests[-1]).items() if key[0].startswith("pod_gpu.")}
    assert accounts == pytest.approx(expected_of_accounts(text))
    assert accounts


# issue 22, line 39
async def test_a_gpu_that_fails_is_pushed_as_failed(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver, simulated: SimulatedNode
) -> None:
    last_xid = 0
    simulated.dcgm.failure = lambda _: web.Response(text=xid_page(last_xid))
    await push()
    await until(lambda: states(receiver) == {"GPU-0": "ok", "GPU-1": "ok"})
    last_xid = 48
    await until(lambda: states(receiver) == {"GPU-0": "failed", "GPU-1": "ok"})


def xid_page(last_xid: int) -> str:
    return "".join(
        f'DCGM_FI_DEV_XID_ERRORS{{gpu="{gpu}",UUID="GPU-{gpu}"}} {xid}\n' for gpu, xid in enumerate((last_xid, 0))
    )


def states(receiver: Receiver) -> dict[str, str]:
    """The state of each GPU of the page by the last push."""
    stated = [point for request in receiver.requests[-1:] for point in points_in(request) if point.value]
    names = [point.attributes for point in stated if point.name == "hw.status"]
    return {of["hw.id"]: of["hw.state"] for of in names if len(of["hw.id"]) == len("GPU-0")}


# issue 17, Must show 3
async def test_all_of_it_is_in_the_conventions(push: Callable[..., Awaitable[Exporter]], receiver: Receiver) -> None:
    await push()
    await until(lambda: len(receiver.requests) > 2)
    points = list(points_in(receiver.requests[-1]))
    assert {point.name for point in points if point.name.startswith("hw.")} == FACTS["metrics"].keys()
    for point in points:
        of_kubernetes = {name for name in point.attributes if name.startswith("k8s.")}
        assert of_kubernetes <= set(FACTS["k8s"])
        if not point.name.startswith("hw."):
            continue
        facts = FACTS["metrics"][point.name]
        assert (point.kind, point.unit) == (facts["instrument"], facts["unit"])
        assert isinstance(point.value, int) is (facts["value"] == "int")
        assert set(facts["required"]) <= point.attributes.keys() <= set(facts["attributes"]) | COMMON | of_kubernetes
        for name, allowed in FACTS["values"].items():
            assert point.attributes.get(name, allowed[0]) in allowed


async def test_the_resource_is_the_node_and_what_opentelemetry_says(
    start: Start, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = await start(otlp_endpoint=receiver.url, otlp_interval="50ms", node_name="n-7")
    await until(lambda: receiver.requests)
    (resource, *_) = [of.resource for of in receiver.requests[0].resource_metrics]
    named = {pair.key: pair.value.string_value for pair in resource.attributes}
    assert named == {"service.name": "pod-gpu-metrics-exporter", "service.instance.id": "n-7", "k8s.node.name": "n-7"}
    await until(lambda: exporter.service.telemetry.pushes["accepted"])


async def test_a_push_is_packed_protobuf(push: Callable[..., Awaitable[Exporter]], receiver: Receiver) -> None:
    await push()
    await until(lambda: receiver.requests)
    headers = receiver.headers_seen[0]
    assert (headers["Content-Type"], headers["Content-Encoding"]) == ("application/x-protobuf", "gzip")


async def test_a_token_goes_with_each_push(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("secret-1\n")
    (tmp_path / "http.yaml").write_text("authorization: {credentials_file: token}\n")
    exporter = await push(otlp_http_config=str(tmp_path / "http.yaml"))
    await until(lambda: receiver.requests)
    assert receiver.headers_seen[0]["Authorization"] == "Bearer secret-1"
    (tmp_path / "token").write_text("secret-2\n")
    await until(lambda: receiver.headers_seen[-1]["Authorization"] == "Bearer secret-2")
    for path in ("/metrics", "/debug/mapping", "/"):
        assert "secret-" not in (await exporter.get(path))[1]


# issue 17, Must show 3
async def test_a_receiver_that_wants_pushes_later_is_left_alone(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver
) -> None:
    receiver.status, receiver.headers = 429, {"Retry-After": "3600"}
    exporter = await push()
    await until_counted(exporter, "skipped", 5)
    assert len(receiver.requests) == (await counted(exporter))["later"] == 1
    assert (await counted(exporter, "points"))["lost"] >= 6 * len(list(points_in(receiver.requests[0])))
    assert (await exporter.get("/-/ready"))[0] == 200


# issue 17, Must show 3
@pytest.mark.parametrize("status", [429, 503])
async def test_it_pushes_again_once_the_receiver_wants_it(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver, status: int
) -> None:
    receiver.status, receiver.headers = status, {"Retry-After": "1"}
    exporter = await push()
    await until(lambda: receiver.requests)
    receiver.status, began = 200, time.monotonic()
    await until_counted(exporter, "accepted")
    assert time.monotonic() - began > 0.8
    _, text = await exporter.get("/metrics")
    assert 'pod_gpu_exporter_source_up{source="otlp"} 1' in text


# issue 17, Must show 3
async def test_a_refusal_is_counted_and_told(push: Callable[..., Awaitable[Exporter]], receiver: Receiver) -> None:
    receiver.status, receiver.body = 400, b"invalid temporality and type combination\n"
    exporter = await push()
    await until_counted(exporter, "refused")
    _, text = await exporter.get("/metrics")
    assert 'pod_gpu_exporter_source_up{source="otlp"} 0' in text
    assert "invalid temporality and type combination" in text
    _, mapping = await exporter.get("/debug/mapping")
    (finding,) = (one for one in json.loads(mapping)["doctor"]["findings"] if one["about"] == "otlp")
    assert (finding["level"], "HTTP status 400" in finding["says"]) == ("warning", True)
    assert finding["remedy"]
    assert (await exporter.get("/-/ready"))[0] == 200


# issue 17, Must show 3
async def test_points_that_a_receiver_rejects_are_counted(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver
) -> None:
    receiver.reject(3, "too old")
    exporter = await push()
    await until_counted(exporter, "partial", 2)
    lost = await counted(exporter, "points")
    assert lost["lost"] >= 6
    assert lost["accepted"] > lost["lost"]
    _, text = await exporter.get("/metrics")
    assert 'pod_gpu_exporter_source_up{source="otlp"} 1' in text
    assert "all but 3 of" in text
    assert "too old" in text


# issue 17, Must show 3
async def test_scrapes_are_as_fast_while_a_receiver_is_slow(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver
) -> None:
    receiver.goes_on.clear()
    exporter = await push()
    await until(lambda: receiver.requests)
    assert await is_quick(exporter.page, 0.3)
    # one push waits, and no other one begins beside it
    for _ in range(10):
        await exporter.page()
    begun = len(receiver.requests)
    assert begun <= 1 + sum((await counted(exporter)).values())
    receiver.goes_on.set()
    await until_counted(exporter, "accepted", 2)


# issue 17, Must show 3
async def test_a_push_without_an_answer_ends(
    push: Callable[..., Awaitable[Exporter]], receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pushing, "TIMEOUT_SECONDS", 0.1)
    receiver.goes_on.clear()
    exporter = await push()
    await until_counted(exporter, "failed")
    _, text = await exporter.get("/metrics")
    assert "no whole answer within 0.1 s" in text
    receiver.goes_on.set()
    await until_counted(exporter, "accepted")


# issue 17, Must show 3
async def test_after_an_outage_the_sums_are_right_and_nothing_was_kept(
    push: Callable[..., Awaitable[Exporter]], start: Start
) -> None:
    port = free_port()
    async with receiving(port) as receiver:
        exporter = await push(otlp_endpoint=receiver.url)
        await until(lambda: sum(sums(receiver).values()) > 0 if receiver.requests else False)
        before = sums(receiver)
        size = size_of(exporter)
    await until_counted(exporter, "failed", 3)
    assert size_of(exporter) == size
    async with receiving(port) as receiver:
        await until(lambda: receiver.requests)
        after = sums(receiver)
        _, text = await exporter.get("/metrics")
    assert after.keys() == before.keys()
    assert all(after[of] > value for of, value in before.items())
    # between what was pushed and what /metrics says a moment later there is a beat at most
    now = sum(value for key, value in expected_of_accounts(text).items() if key[0] == "pod_gpu.allocated")
    assert sum(after.values()) <= now
    began = {point.began_ns for point in points_in(receiver.requests[0]) if point.name == "pod_gpu.allocated"}
    assert 0 not in began


def size_of(exporter: Exporter) -> int:
    """How many points are kept between pushes."""
    ((_, _, used),) = (bound for bound in exporter.service.telemetry.bounds if bound[0] == "otlp_points")
    return used


# a JSON field, the metric that has it, and what one of the field's unit is in the metric's
AS_JSON = {
    "framebuffer_used": ("hw.gpu.memory.usage", "", 2**20),
    "framebuffer_total": ("hw.gpu.memory.limit", "", 2**20),
    "power_usage": ("hw.power", "", 1),
    "temperature": ("hw.temperature", "gpu", 1),
    "memory_temperature": ("hw.temperature", "memory", 1),
    "gpu_utilization": ("hw.gpu.utilization", "", 0.01),
}


# issue 17, Must show 2
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
async def test_another_vendors_devices_are_pushed_as_they_are_in_json(
    simulated: SimulatedNode, start: Start, receiver: Receiver, case: Case
) -> None:
    await VendorNode(simulated, start).run(case, otlp_endpoint=receiver.url, otlp_interval="100ms")
    await until(lambda: len(receiver.requests) > 2)
    points = list(points_in(receiver.requests[-1]))
    for device, fields in {case.device: case.fields, **case.others}.items():
        of_device = [point for point in points if point.attributes["hw.id"] == device]
        for name, (metric, place, times) in AS_JSON.items():
            values = [
                point.value
                for point in of_device
                if point.name == metric and point.attributes.get("hw.sensor_location", "") == place
            ]
            expected = [fields[name] * times] if name in fields else []
            assert values == pytest.approx(expected, abs=0.6 if times > 1 else 1e-6), (device, name)
        holders = {point.attributes.get("k8s.pod.name") for point in of_device if point.name.startswith("hw.")}
        assert holders == {HOLDER["pod"] if device == case.device else None}


# issue 17, Must show 5
def test_an_exporter_that_does_not_push_loads_nothing_for_it() -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.support.exporter import config_of, running\n"
        "async def main():\n"
        "    async with running(config_of(**dict(given.split('=', 1) for given in sys.argv[1:]))):\n"
        "        print(*sorted(name for name in sys.modules if 'opentelemetry' in name or 'otlp' in name))\n"
        "asyncio.run(main())"
    )
    loaded = [
        subprocess.run([sys.executable, "-c", program, *given], check=True, capture_output=True, text=True, cwd=ROOT)
        for given in ([], ["otlp_endpoint=http://127.0.0.1:9"])
    ]
    without, with_it = (set(ended.stdout.split()) for ended in loaded)
    assert without == {"exporter.config.otlp"}
    assert "opentelemetry.proto.metrics.v1.metrics_pb2" in with_it
