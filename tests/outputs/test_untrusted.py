"""What pods and upstreams name themselves is not trusted: no HTML, no escape sequence, no second line gets through."""

import asyncio
import json
import re
import subprocess
import sys
import tarfile
from html import escape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from aiohttp import web

from exporter.exposition.lines import Reason, read_line
from tests.support.exporter import Exporter, config_of, running
from tests.support.simulated import GPU_RESOURCE, Container, Pod, SimulatedNode, World

EVIL = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\x1b[31mred\x1b]0;title\x07\x9b2J",
    "two\nlines\r\x0b\x0c",
    '\\"} 1\nforged{a="b',
    "\u202egnp.exe\u2028next",
    "' onmouseover='alert(1)",
    "\x7f\x08\x00",
)


def escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n").replace("\0", "")


@pytest.fixture
async def evil_node() -> SimulatedNode:
    node = SimulatedNode(World(gpus=len(EVIL), seed=3))
    gpus = node.world.gpus
    held = [(gpu.uuid, GPU_RESOURCE, text) for gpu, text in zip(gpus, EVIL, strict=True)]
    held += [(EVIL[2], GPU_RESOURCE, "y"), (EVIL[4], f"nvidia.com/{EVIL[0]}", "z")]
    node.world.pods = tuple(
        Pod(namespace=text, name=text, containers=(Container(name=text, devices=((resource, device),)),))
        for device, resource, text in held
    )
    page = "".join(
        f'DCGM_FI_DEV_POWER_USAGE{{gpu="{gpu.index}",UUID="{gpu.uuid}",modelName="{escaped(text)}"}} 1\n'
        for gpu, text in zip(gpus, EVIL, strict=True)
    )
    node.dcgm.failure = lambda _: web.Response(body=page.encode())
    return node


def is_plain(text: str) -> bool:
    """Nothing in it that a terminal obeys."""
    return not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]", text)


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}


async def test_every_output(evil_node: SimulatedNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    await evil_node.start()
    try:
        config = config_of(
            kubelet_socket=str(evil_node.socket), dcgm_url=evil_node.url, labels_pod_uid="on", node_name=EVIL[0]
        )
        async with running(config) as exporter:
            await check_pages(exporter)
        bundle = tmp_path / "bundle.tar.gz"
        command = [sys.executable, "-m", "exporter", "doctor", f"--dcgm.url={evil_node.url}", f"--bundle={bundle}"]
        ran = await asyncio.to_thread(
            subprocess.run,
            [*command, f"--kubelet.socket={evil_node.socket}", "--log.level=debug"],
            capture_output=True,
        )
        assert is_plain(ran.stdout.decode()), ran.stdout
        assert is_plain(ran.stderr.decode()), ran.stderr
        with tarfile.open(bundle) as archive:
            names = archive.getnames()
        assert all(re.fullmatch(r"gpu-bundle(/[\w.-]+)+", name, re.ASCII) for name in names), names
    finally:
        await evil_node.stop()


async def check_pages(exporter: Exporter) -> None:
    for path in ("/gpu/metrics", "/metrics", "/metrics/nodes"):
        async with exporter.session.get(exporter.base + path) as response:
            assert response.headers["Content-Type"].startswith("text/plain")
            body = await response.read()
        for line in body.split(b"\n"):
            assert not isinstance(read_line(line), Reason), line
        assert b"\nforged{" not in body
    status, text = await exporter.get("/debug/mapping")
    assert status == 200
    assert is_plain(text)
    found = json.dumps(json.loads(text), ensure_ascii=False)
    assert "<script>" in found, "JSON says it as it is"
    async with exporter.session.get(f"{exporter.base}/") as response:
        assert response.headers["Content-Type"] == "text/html; charset=utf-8"
        html = await response.text()
    tags = Tags()
    tags.feed(html)
    assert not tags.tags & {"img", "iframe", "object", "base", "style"}
    assert f"<title>GPUs of {escape(EVIL[0])}</title>" in html
    assert html.count("<script") == html.count('<script src="static/page.js?v=') == 1, "its own"
    assert is_plain(html)
    assert not {name for name in tags.attributes if name.startswith("on")}
    assert "&lt;script&gt;" in html
    # the page would not run a script even if one got through
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';" in policy
    assert "unsafe" not in policy
    assert response.headers["X-Content-Type-Options"] == "nosniff"


async def test_the_log(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> None:
    from exporter.log import log, start_logging  # noqa: PLC0415

    for log_format in ("logfmt", "json"):
        start_logging("debug", log_format)
        for text in EVIL:
            log(30, "an event", source=text, error=text)
        shown = capsys.readouterr().err
        assert len(shown.splitlines()) == len(EVIL)
        assert is_plain(shown)
