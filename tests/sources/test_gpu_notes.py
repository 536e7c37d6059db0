"""The notes on GPUs: what is read of the file, and what the node says of it."""

import json
from pathlib import Path

import pytest

from exporter.errors import Malformed
from exporter.sources.gpu_notes import FILE, NAME, parse
from tests.support.exporter import config_of, running
from tests.support.simulated import SimulatedNode

UUID = "GPU-40f717b2-d09e-4a1f-b8e7-0f5ef53b8a9f"


def test_notes_by_uuid() -> None:
    assert parse(json.dumps({UUID: "lent to speech"}).encode()) == {UUID: "lent to speech"}


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"GPU-1": 1}', b'{"x": "y"}', b'{"GPU-1": "", "GPU-1": ""}', b"\xff"]
)
def test_what_is_refused(content: bytes) -> None:
    with pytest.raises(Malformed):
        parse(content)


@pytest.mark.parametrize(("content", "up"), [(json.dumps({UUID: "x"}), True), ("[", False)])
async def test_its_health_is_on_the_mapping(simulated: SimulatedNode, tmp_path: Path, content: str, up: bool) -> None:
    file = tmp_path / FILE.lstrip("/")
    file.parent.mkdir(parents=True)
    file.write_text(content)
    config = config_of(kubelet_socket=str(simulated.socket), dcgm_url=simulated.url, root=str(tmp_path))
    async with running(config) as exporter:
        _, text = await exporter.get("/debug/mapping")
        health = json.loads(text)["sources"][NAME]
        assert health["up"] is up, health
        _, text = await exporter.get("/metrics")
        assert f'pod_gpu_exporter_source_up{{source="{NAME}"}} {int(up)}' in text
