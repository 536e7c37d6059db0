"""The endpoints over real HTTP: statuses, headers, encodings, and what a scrape sees of its sources."""

import asyncio
import gc
import gzip
import logging
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from exporter import service
from exporter.bundle.collecting.looking import collect
from exporter.model.pages import JoinedPage, Page
from exporter.outputs import gpu_metrics
from exporter.web import guard
from exporter.web.endpoints import PIECE_BYTES, accepts_gzip, patience_of
from tests.support.exporter import PATHS, STATUS, Start, config_of
from tests.support.simulated import SimulatedNode
from tests.support.waiting import is_quick, until


async def test_the_page(start: Start) -> None:
    exporter = await start()
    async with exporter.session.get(f"{exporter.base}/gpu/metrics") as response:
        assert response.status == 200
        assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = await response.text()
    assert 'pod_gpu_exporter_source_up{source="kubelet"} 1\n' in text
    assert 'pod="",namespace="",container=""' in text
    assert 'gpu_shared="true"' in text


@pytest.mark.parametrize("path", PATHS)
async def test_get_and_head_only(start: Start, path: str) -> None:
    exporter = await start()
    url = exporter.base + path
    status = STATUS.get(path, 200)
    async with exporter.session.get(url) as response:
        assert response.status == status
    async with exporter.session.head(url) as response:
        assert (response.status, await response.read()) == (status, b"")
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with exporter.session.request(method, url) as response:
            assert response.status == 405, method


async def test_a_fault_of_our_own_is_an_answer_and_a_trace(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = await start()
    with monkeypatch.context() as broken:
        broken.setattr(gpu_metrics, "render", lambda _: 1 / 0)
        async with exporter.session.get(f"{exporter.base}/gpu/metrics") as response:
            assert response.status == 500
            assert "its log has the trace" in await response.text()
            assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert "ZeroDivisionError" in caplog.text
    await exporter.page()


async def test_an_unknown_path(start: Start) -> None:
    assert (await (await start()).get("/gpu/metric"))[0] == 404


async def test_gzip_when_asked_for(start: Start) -> None:
    exporter = await start()
    url = f"{exporter.base}/gpu/metrics"
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(url, headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            packed = await response.read()
        async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
            assert "Content-Encoding" not in response.headers
            plain = await response.read()
    assert gzip.decompress(packed).count(b"\n") == plain.count(b"\n")
    assert len(packed) * 8 < len(plain)


@pytest.mark.parametrize(
    ("header", "answer"),
    [
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip; q=0", False),
        ("identity", False),
        ("", False),
        ("x-gzip", False),
    ],
)
def test_accept_encoding(header: str, answer: bool) -> None:
    assert accepts_gzip(header) is answer


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("10", 9.5),
        ("1", 0.5),
        ("0.5", 0.25),
        ("0.8", 0.4),
        ("0", None),
        ("-1", None),
        ("nan", None),
        ("x", None),
        (None, None),
    ],
)
def test_patience(header: str | None, seconds: float | None) -> None:
    headers = {} if header is None else {"X-Prometheus-Scrape-Timeout-Seconds": header}
    assert patience_of(headers) == seconds


async def test_no_dcgm_exporter_is_503_with_the_reason_and_metrics_still_answers(
    start: Start, simulated: SimulatedNode
) -> None:
    exporter = await start()
    await simulated.dcgm.stop()
    status, text = await exporter.get("/gpu/metrics")
    assert status == 503
    assert text.count("\n") == 1
    assert "is dcgm-exporter running" in text
    status, text = await exporter.get("/metrics")
    assert status == 200
    assert f'pod_gpu_exporter_source_up{{source="dcgm:{simulated.url[7:-8]}"}} 0\n' in text
    assert re.search(r"^# dcgm:\S+ failed \(refused\): .*is dcgm-exporter running", text)
    # who holds what is the kubelet's word, and is still said
    assert "pod_gpu_info{" in text
    assert "pod_gpu_exporter_unmatched_devices" not in text


async def test_no_kubelet_is_samples_without_owners(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(kubelet_socket="/no/such/kubelet.sock")
    text = await exporter.page()
    assert 'pod_gpu_exporter_source_up{source="kubelet"} 0\n' in text
    assert "pod_gpu_exporter_assignments_age_seconds" not in text
    assert text.count('pod="",namespace="",container=""') == sum(
        not line.startswith("#") for line in simulated.dcgm.page().splitlines()
    )


async def test_one_upstream_of_two_fails(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start(dcgm_url=["http://127.0.0.1:1/metrics", simulated.url])
    text = await exporter.page()
    assert 'pod_gpu_exporter_source_up{source="dcgm:127.0.0.1:1"} 0\n' in text
    assert f'pod_gpu_exporter_source_up{{source="dcgm:{simulated.url[7:-8]}"}} 1\n' in text
    assert "DCGM_FI_DEV_POWER_USAGE{" in text


# issue 7, line 33
@pytest.mark.parametrize("answer", [None, b"\0no HTTP\r\n\r\n"], ids=["it answers", "no HTTP"])
async def test_what_follows_a_question_mark_in_a_url_shows_nowhere(
    start: Start, simulated: SimulatedNode, caplog: pytest.LogCaptureFixture, answer: bytes | None
) -> None:
    async def no_http(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer or b"")
        writer.close()

    caplog.set_level(logging.DEBUG)
    server = await asyncio.start_server(no_http, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics" if answer else simulated.url
    settings: dict[str, Any] = {
        "dcgm_url": [f"{url}?token=jelly", f"{url}?token=jelly-2"],
        "kubelet_socket": str(simulated.socket),
    }
    exporter = await start(**settings)
    for path in ("/-/ready", *PATHS):
        assert "jelly" not in (await exporter.get(path))[1], path
    assert "jelly" not in repr(await collect(config_of(**settings)))
    assert "jelly" not in "".join(f"{vars(record)}" for record in caplog.records)
    server.close()
    await server.wait_closed()


async def test_two_upstreams_with_the_same_families_become_one_page(start: Start, simulated: SimulatedNode) -> None:
    alone = await (await start()).page()
    exporter = await start(dcgm_url=[simulated.url, simulated.url + "?again"])
    text = await exporter.page()
    assert text.count("# TYPE DCGM_FI_DEV_POWER_USAGE gauge\n") == 1
    assert text.count("DCGM_FI_DEV_POWER_USAGE{") == alone.count("DCGM_FI_DEV_POWER_USAGE{")
    _, own = await exporter.get("/metrics")
    duplicates = next(line for line in own.splitlines() if 'rejected_lines_total{reason="duplicate"}' in line)
    assert int(duplicates.rpartition(" ")[2]) > 0


async def test_rejected_lines_count_once_a_read(start: Start, simulated: SimulatedNode) -> None:
    bad = b'a{x="1"} 1\na{x="1"} 2\nb{ 1\nc N/A\n'
    simulated.dcgm.failure = lambda _: web.Response(body=bad)
    exporter = await start(accounting_mode="off")
    await exporter.page()
    await exporter.page()
    assert dict(exporter.service.telemetry.rejected) == {"duplicate": 2, "syntax": 2, "value": 2}
    # scrapes that share a read share its count
    before = simulated.dcgm.fetches
    await asyncio.gather(*(exporter.page() for _ in range(20)))
    reads = simulated.dcgm.fetches - before
    assert exporter.service.telemetry.rejected["syntax"] == 2 + reads


async def test_rejected_lines_of_a_file_count_once_as_long_as_it_stays(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "dcgm.prom"
    exporter = await start(dcgm_url=[], dcgm_file=str(file))
    for written, expected in ((1, 1), (2, 2)):
        file.with_suffix(".new").write_text(f'a{{x="{written}"}} 1\nb{{ 1\n')
        file.with_suffix(".new").rename(file)
        await exporter.page()
        await exporter.page()
        assert exporter.service.telemetry.rejected["syntax"] == expected


@pytest.fixture
def large(simulated: SimulatedNode) -> bytes:
    """A page of a large node: a few times what is written at a time."""
    gpus = [gpu.uuid for gpu in simulated.world.gpus]
    page = b"".join(
        b'family_%d{UUID="%b",modelName="NVIDIA H100 80GB HBM3"} %d\n' % (number, uuid.encode(), number)
        for number in range(2 * PIECE_BYTES // 300)
        for uuid in gpus
    )
    simulated.dcgm.failure = lambda _: web.Response(body=page)
    return page


async def test_a_large_page(start: Start, large: bytes) -> None:
    exporter = await start()
    url = f"{exporter.base}/gpu/metrics"
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
            plain = await response.read()
            assert int(response.headers["Content-Length"]) == len(plain) > len(large) > 2 * PIECE_BYTES
        async with session.get(url, headers={"Accept-Encoding": "gzip"}) as response:
            packed = await response.read()
        async with session.head(url, headers={"Accept-Encoding": "identity"}) as response:
            assert await response.read() == b""
            # the exporter's own families at the end vary by a digit or two
            assert abs(int(response.headers["Content-Length"]) - len(plain)) < 100
    for page in (plain, gzip.decompress(packed)):
        own = page.index(b"# HELP pod_gpu_exporter_")
        # of a shared GPU there are several rows
        rows = dict.fromkeys(line.partition(b",pod=")[0] for line in page[:own].splitlines())
        assert list(rows) == [line.partition(b"}")[0] for line in large.splitlines()]
        assert page.endswith(b"\n")


async def test_a_reader_that_takes_nothing_is_cut_off(
    start: Start, simulated: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "WRITE_SECONDS", 0.4)
    # more than a socket's buffers take
    rows = b"".join(b'a{UUID="GPU-1",row="%d",text="%b"} 1\n' % (row, b"x" * 8000) for row in range(1_500))
    simulated.dcgm.failure = lambda _: web.Response(body=rows)
    exporter = await start(dcgm_max_bytes=str(len(rows)))
    host, port = exporter.base.removeprefix("http://").split(":")
    # the look that the first answer asked for finds a younger one, and comes back for it
    assert (await exporter.get("/-/healthy"))[0] == 200
    await asyncio.sleep(0.3)
    reader, writer = await asyncio.open_connection(host, int(port), limit=1)
    writer.write(b"GET /gpu/metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    refused = exporter.service.telemetry.refused
    began = time.monotonic()
    assert await until(lambda: refused["slow_reader"]) == 1
    assert time.monotonic() - began > 0.3
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(len(rows))
    writer.close()
    # the others go on
    simulated.dcgm.failure = None
    await exporter.page()


async def test_between_scrapes_no_page_is_kept(start: Start, large: bytes) -> None:
    exporter = await start()
    await exporter.page()

    def is_none_kept() -> bool:
        gc.collect()
        return not any(isinstance(it, Page | JoinedPage) and large[:9] in it.body for it in gc.get_objects())

    await until(is_none_kept)  # the answer was read, its handler may not have ended


async def test_a_hanging_upstream_costs_a_scrape_its_share_of_the_timeout(
    start: Start, simulated: SimulatedNode, hanging: str
) -> None:
    exporter = await start(dcgm_url=[hanging, simulated.url])
    answer = 0, ""

    async def scrape() -> None:
        nonlocal answer
        answer = await exporter.get("/gpu/metrics", **{"X-Prometheus-Scrape-Timeout-Seconds": "1"})

    assert await is_quick(scrape, 1.0)
    status, text = answer
    assert status == 200
    assert f'source_up{{source="dcgm:{hanging[7:-8]}"}} 0\n' in text
    assert "DCGM_FI_DEV_POWER_USAGE{" in text


@pytest.mark.usefixtures("half_a_second")
async def test_a_hanging_kubelet_costs_half_a_second_once_owners_are_known(
    start: Start, simulated: SimulatedNode
) -> None:
    exporter = await start(kubelet_max_age="0s")
    owned = (await exporter.page()).count('pod="",')
    simulated.kubelet.stall()
    loop = asyncio.get_running_loop()
    text, took_seconds = "", 0.0
    while 'source_up{source="kubelet"} 0\n' not in text:  # a read that began before the stall is still answered
        began = loop.time()
        text = await exporter.page()
        took_seconds = loop.time() - began
    assert 0.4 < took_seconds < 4.0
    assert text.count('pod="",') == owned
    simulated.kubelet.resume()
    await exporter.until_page(lambda page: 'source_up{source="kubelet"} 1\n' in page)


@pytest.fixture
async def hanging() -> AsyncIterator[str]:
    """The URL of a server that takes requests and never answers."""
    connections: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: connections.append(writer), "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/metrics"
    server.close()
    for writer in connections:
        writer.transport.abort()


async def test_ready_only_with_the_kubelets_word_and_then_for_good(start: Start, simulated: SimulatedNode) -> None:
    await simulated.kubelet.stop()
    exporter = await start(kubelet_max_age="0s")
    assert (await exporter.get("/-/healthy"))[0] == 200
    await exporter.until("/-/ready", lambda text: "kubelet" in text, status=503)
    await simulated.kubelet.start()
    await exporter.until("/-/ready", lambda text: text)
    await simulated.kubelet.stop()
    await simulated.dcgm.stop()
    await exporter.get("/gpu/metrics")
    assert (await exporter.get("/-/ready"))[0] == 200


async def test_an_exporter_in_front_of_itself_says_so(start: Start) -> None:
    last = await start()
    first = await start(dcgm_url=f"{last.base}/gpu/metrics")
    # a chain is fine: what the first one attributed stays
    assert "DCGM_FI_DEV_POWER_USAGE{" in await first.page()
    async with first.session.get(
        f"{first.base}/gpu/metrics", headers={"Via": f"1.1 {first.service._role.instance}"}
    ) as response:
        assert response.status == 508


async def test_the_landing_page_links_what_there_is(start: Start, simulated: SimulatedNode) -> None:
    exporter = await start()
    _, html = await exporter.get("/")
    linked = [path for path in PATHS if path not in ("/", "/healthz") and not path.startswith("/static/")]
    # relative, for whoever looks through a proxy that puts a path before them
    assert [f"/{path}" for path in re.findall(r'<dt><a href="([^"]*)"', html) if path[0] != "?"] == linked
    for path in PATHS:
        assert (await exporter.get(path))[0] == STATUS.get(path, 200)
    assert "kubelet" in html
    assert "4 GPUs seen" in html
    for gpu in simulated.world.gpus:
        assert gpu.uuid in html
    for pod in simulated.world.pods:
        if any(device.startswith("GPU-") for container in pod.containers for _, device in container.devices):
            assert f"<bdi>{pod.name}</bdi>" in html
            assert f"<bdi>{pod.namespace}</bdi>" in html


async def test_families_can_be_left_out(start: Start) -> None:
    page = await (await start(families_allow=["DCGM_FI_DEV_.*"], families_deny=[".*_TEMP"])).page()
    assert "DCGM_FI_DEV_POWER_USAGE" in page
    assert "_TEMP" not in page
    assert "DCGM_FI_PROF" not in page


async def test_a_held_up_event_loop_is_seen(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LAG_EVERY_SECONDS", 0.05)
    exporter = await start()
    await asyncio.sleep(0.2)

    async def above_a_tenth() -> float:
        _, text = await exporter.get("/metrics")
        found = dict(
            re.findall(r'^pod_gpu_exporter_event_loop_lag_seconds_bucket{le="(\S+)"} (\S+)$', text, re.MULTILINE)
        )
        assert float(found["+Inf"]) > 0
        return float(found["+Inf"]) - float(found["0.1"])

    before = await above_a_tenth()
    time.sleep(0.3)

    async def is_noted() -> bool:
        return await above_a_tenth() > before

    await until(is_noted)


async def test_pods_that_come_and_go_are_followed(start: Start, simulated: SimulatedNode) -> None:
    # A look of the exporter's own may have asked the kubelet just before a step, and a scrape shares its call.
    exporter = await start(kubelet_max_age="0s", accounting_mode="off")
    for _ in range(10):
        simulated.world.step()
        page = await exporter.page()
        named = {
            pod.name
            for pod in simulated.world.pods
            if any(device.startswith("GPU-") for container in pod.containers for _, device in container.devices)
        }
        assert set(names_in(page)) - {""} == named


def names_in(page: str) -> list[str]:
    return [part.partition('"')[0] for part in page.split('pod="')[1:]]
