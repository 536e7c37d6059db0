"""Which exporter runs here, and with which settings: by its process' command line, environment and folder."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.config.parsers import Address
from exporter.doctor.running_settings import (
    RunningExporter,
    exporters_here,
    meant,
    serve_arguments,
    settings_shown,
)
from tests.support.exporter import config_of
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("python3 -m exporter serve --dcgm.mode off", "--dcgm.mode off"),
        ("/opt/venv/bin/python -u -X dev -m exporter", ""),
        ("/usr/bin/python3.12 /usr/local/bin/pod-gpu-metrics-exporter --sharing split", "--sharing split"),
        ("pod-gpu-metrics-exporter serve", ""),
        ("/usr/local/bin/pod-gpu-metrics-exporter", ""),
        ("pod-gpu-metrics-exporter doctor --bundle -", None),
        ("python3 -m exporter demo", None),
        ("python3 -m exporter healthcheck", None),
        ("python3 -m http.server", None),
        ("python3 -c print() -m exporter", None),
        ("sh -c pod-gpu-metrics-exporter", None),
        ("", None),
    ],
)
def test_which_command_lines_serve(command: str, arguments: str | None) -> None:
    wanted = None if arguments is None else tuple(arguments.split())
    assert serve_arguments(command.split()) == wanted


class Machine:
    """A /proc with processes that a test makes up."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.proc.mkdir()

    def runs(self, pid: int, command: Sequence[str], environ: Sequence[str] = (), folder: str = "/") -> Path:
        process = self.proc / str(pid)
        process.mkdir()
        (process / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in command))
        (process / "environ").write_bytes(b"".join(text.encode() + b"\0" for text in environ))
        (process / "cwd").symlink_to(folder)
        (process / "root").symlink_to("/")
        return process


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_command_line_environment_and_file(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("sharing: split\nnode-name: of-the-file\n")
    command = ["python3", "-m", "exporter", "serve", "--config.file=settings.yaml", "--dcgm.file", "here.prom"]
    environ = ["NODE_NAME=gpu-7", "POD_GPU_EXPORTER_WEB_LISTEN_ADDRESS=:9999", "AWS_SECRET_ACCESS_KEY=hunter2"]
    machine.runs(7, command, environ, str(tmp_path))
    machine.runs(8, ["postgres"])
    (exporter,), troubles = exporters_here(machine.proc)
    assert troubles == []
    assert exporter.pid == 7
    config = exporter.config
    assert (config.node.name, config.sharing.mode) == ("gpu-7", "split")
    assert config.dcgm.files == (str(tmp_path / "here.prom"),)
    assert config.web.listen_addresses == (Address(host="", port=9999),)
    assert not exporter.is_elsewhere
    assert "hunter2" not in repr(exporter)


def test_settings_that_cannot_be_used_cost_only_their_process(machine: Machine) -> None:
    machine.runs(3, ["python3", "-m", "exporter", "serve", "--sharing=fair"])
    machine.runs(4, ["python3", "-m", "exporter", "serve", "--no-such-flag"])
    machine.runs(5, ["python3", "-m", "exporter", "serve", "--help"])
    machine.runs(6, ["python3", "-m", "exporter", "serve", "--config.file=/nowhere.yaml"])
    machine.runs(9, ["python3", "-m", "exporter", "serve"])
    exporters, troubles = exporters_here(machine.proc)
    assert [exporter.pid for exporter in exporters] == [9]
    assert ["process 3" in troubles[0], "--sharing" in troubles[0]] == [True, True]
    assert ["process 4" in troubles[1], "no-such-flag" in troubles[1]] == [True, True]
    assert "process 6" in troubles[-1]


def test_a_process_that_may_not_be_read(machine: Machine) -> None:
    process = machine.runs(3, ["python3", "-m", "exporter", "serve"])
    (process / "environ").unlink()
    (process / "environ").mkdir()  # root may read every file
    exporters, troubles = exporters_here(machine.proc)
    assert exporters == []
    assert "the settings of process 3 cannot be read" in troubles[0]


ANY, LOOPBACK = Address(host="", port=9400), Address(host="127.0.0.1", port=9400)
OTHER = Address(host="", port=9500)


@pytest.mark.parametrize(
    ("listening", "asked", "is_named", "pid"),
    [
        ((), ANY, False, None),
        ((ANY,), ANY, False, 0),
        ((OTHER,), ANY, False, 0),  # the only one
        ((OTHER,), ANY, True, None),
        ((ANY, OTHER), OTHER, True, 1),
        ((ANY, OTHER), LOOPBACK, True, 0),
        ((ANY, ANY), ANY, True, None),  # in two containers
        ((OTHER, OTHER), ANY, False, None),
    ],
)
def test_which_exporter_of_several_is_meant(
    listening: tuple[Address, ...], asked: Address, is_named: bool, pid: int | None
) -> None:
    config = config_of()
    exporters = [
        RunningExporter(pid=number, config=replace(config, web=replace(config.web, listen_addresses=(address,))))
        for number, address in enumerate(listening)
    ]
    chosen = meant(exporters, asked, is_named=is_named)
    assert (chosen and chosen.pid) == pid
    assert (chosen is None) == (pid is None)


def test_settings_that_an_exporter_shows() -> None:
    shown = config_of(dcgm_url=["http://me:pw@a/metrics?x=1", "http://b/metrics"], sharing="split").shown()
    flags = settings_shown(shown)
    assert flags["dcgm.url"] == ("http://a/metrics", "http://b/metrics")
    assert flags["sharing"] == ("split",)
    assert "kubelet.timeout" not in flags


@pytest.fixture
def serving() -> Iterator[int]:
    """A real process that serves."""
    command = [sys.executable, "-m", "exporter", "serve", "--web.listen-address=127.0.0.1:0", "--nvml.mode=off"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, env={**os.environ, "NODE_NAME": "serving-1"})
    yield process.pid
    process.kill()
    process.wait()


def test_a_real_process(serving: int) -> None:
    # it has its command line only once it is that program
    (exporter,) = wait_until(lambda: [exporter for exporter in exporters_here()[0] if exporter.pid == serving])
    assert exporter.config.node.name == "serving-1"
    assert exporter.config.nvml.mode == "off"
