"""`demo --replay`: what it says of a bundle, and what it serves."""

import re
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from exporter.bundle import archive
from exporter.bundle.recording import Absence, PeerAnswer, RecordedMoment, Recording
from exporter.errors import Trouble
from exporter.simulator.demo import demo
from exporter.simulator.replay.replay_demo import about_bundle
from tests.support.demo import printing_demo
from tests.support.nvml import GPU
from tests.support.waiting import wait_until

URL = "http://10.0.0.1:9400/metrics"


def page_at(at_seconds: float, value: int) -> RecordedMoment:
    """A moment at which only a page answers."""
    page = f'# TYPE DCGM_FI_DEV_GPU_TEMP gauge\nDCGM_FI_DEV_GPU_TEMP{{gpu="0",UUID="{GPU(0)}"}} {value}\n'
    answer = PeerAnswer(peer="page", name="dcgm:10.0.0.1:9400", question=URL, body=page.encode())
    return RecordedMoment(at_seconds=at_seconds, answers=(answer,))


RECORDING = Recording(
    made_by="1.2.3",
    settings={"dcgm.url": (URL,), "node-name": ("node-1",)},
    moments=(page_at(1_000_000_000.0, 41), page_at(1_000_000_090.0, 42)),
    absences=(Absence(what="nvml", why=Trouble("missing", "there is no libnvidia-ml.so.1")),),
)


def test_a_bundle_is_served_and_told_of(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    with path.open("wb") as file:
        archive.write(RECORDING, file)
    with printing_demo("--replay", str(path), "--speed", "1000") as lines:
        text = "".join(lines)
        port = re.search(r"http://localhost:(\d+)/", text)
        assert port, text
        url = f"http://127.0.0.1:{port[1]}/gpu/metrics"
        wait_until(lambda: _has_the_last_value(url))
    assert "Replaying bundle.tar.gz: a bundle of 2001-09-09T01:46:40Z, made by version 1.2.3." in text
    assert "Its 2 moments follow over 90 s, 1000 times as fast; the last one stays." in text
    assert "The bundle lacks\n  nvml: there is no libnvidia-ml.so.1\n" in text


def test_a_bundle_whose_nvml_never_answered_is_played(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    settings = {"dcgm.mode": ("off",), "node-name": ("node-1",)}
    listed = PeerAnswer(peer="kubelet", name="kubelet", question="v1.PodResourcesLister/List")
    moment = RecordedMoment(at_seconds=1.0, answers=(listed,))
    with path.open("wb") as file:
        archive.write(Recording(made_by="1.2.3", settings=settings, moments=(moment,)), file)
    with printing_demo("--replay", str(path)) as lines:
        assert "Replaying bundle.tar.gz" in "".join(lines)


def _has_the_last_value(url: str) -> bool:
    page: bytes = urlopen(url).read()
    return any(line.endswith(b" 42") for line in page.splitlines())


def test_one_moment_is_told_of() -> None:
    one = Recording(made_by="1.2.3", settings={}, moments=(page_at(1e30, 1),))
    assert [*about_bundle("b", one)] == [
        "Replaying b: a bundle of an unknown time, made by version 1.2.3.",
        "Its one moment stays.",
    ]


@pytest.mark.parametrize(
    "flag", ["--gpus=2", "--nodes=2", "--seed=1", "--fail", "--settings-file=x", "--config.file=x"]
)
def test_flags_of_a_simulated_node_are_refused(tmp_path: Path, flag: str) -> None:
    (tmp_path / "b.tar.gz").touch()
    result = CliRunner().invoke(demo, ["--replay", str(tmp_path / "b.tar.gz"), flag])
    assert result.exit_code == 2
    assert f"{flag.partition('=')[0]} does not go with --replay" in result.output
