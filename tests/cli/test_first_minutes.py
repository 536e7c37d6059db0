"""What somebody meets in the first minutes: the help, and a node exporter where there is no node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import exporter
from exporter.cli.commands import COMMANDS
from exporter.cli.main import commands, run
from tests.support.command import run_here
from tests.support.forked import Forked
from tests.support.places import ROOT
from tests.support.waiting import wait_until


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_and_a_line_says_what_each_command_is_for(command: str) -> None:
    of_all, of_one = (
        CliRunner().invoke(commands, arguments, terminal_width=80).stdout.splitlines()
        for arguments in (["--help"], [command, "--help"])
    )
    assert all(len(line) <= 80 for line in of_one)
    (line,) = [line for line in of_all if line.startswith(f"  {command} ")]
    assert not line.endswith("...")


def test_the_help_of_healthcheck_has_what_decides_where_it_asks() -> None:
    shown = CliRunner().invoke(commands, ["healthcheck", "--help"]).stdout
    assert "--web.listen-address" in shown
    assert "--kubelet.socket" not in shown
    asked = run_here("healthcheck", "--kubelet.socket=/x", "--web.listen-address=127.0.0.1:1")
    assert "does not answer" in asked.stderr


# issue 12, "First minutes"
def test_serve_without_a_gpu_says_once_what_it_looked_for(tmp_path: Path) -> None:
    log = log_of_serve(tmp_path / "log", f"--kubelet.socket={tmp_path}/no/kubelet.sock", beats=3)
    (line,) = [line for line in log if "this does not look like a GPU node" in line]
    for part in (f"{tmp_path}/no does not exist", "127.0.0.1:1: nobody listens", "libnvidia-ml.so.1", "exporter demo."):
        assert part in line
    # each failure once, and nothing more of it with the looks that follow
    assert len([line for line in log if "level=warning" in line]) == 2


# issue 12, "First minutes"
def test_serve_offers_no_demo_where_a_source_answers(tmp_path: Path) -> None:
    page = tmp_path / "page.prom"
    page.write_text('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 1\n')
    sources = (f"--kubelet.socket={tmp_path}/no/kubelet.sock", f"--dcgm.file={page}")
    log = log_of_serve(tmp_path / "log", *sources, beats=1)
    assert [line for line in log if "GPU node" in line] == []


def log_of_serve(log: Path, *arguments: str, beats: int) -> list[str]:
    """What it logs until it has looked so often by itself."""
    words = ["serve", "--dcgm.url=http://127.0.0.1:1/metrics", "--accounting.interval=100ms"]
    words += ["--web.listen-address=127.0.0.1:0", "--log.level=debug", *arguments]
    process = Forked(run, words, log)
    try:
        wait_until(lambda: log.read_text().count("msg=read source=kubelet") > beats, why=log.read_text)
        process.send_signal(signal.SIGTERM)
        assert process.join(60) == 0
    finally:
        process.kill()
        process.join()
    return log.read_text().splitlines()


# issue 26, "Less in the way": the image and the exporter's wheel have no simulator
@pytest.fixture
def without_simulator(tmp_path: Path) -> dict[str, str]:
    """The environment of a program that was installed without the simulator: its other files, by links."""
    package = tmp_path / "exporter"
    package.mkdir()
    # not the checkout's: in the image the tests run with the image's own
    for path in Path(exporter.__file__).parent.iterdir():
        if path.name not in ("simulator", "__pycache__"):
            (package / path.name).symlink_to(path)
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


@pytest.mark.parametrize(
    "arguments", [("demo",), ("demo", "--replay", "b.tar.gz"), ("demo", "--help"), ("bundle", "test", "b.tar.gz")]
)
def test_what_needs_the_simulator_says_how_to_get_it(without_simulator: dict[str, str], arguments: list[str]) -> None:
    ended = in_environment(without_simulator, *arguments)
    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert " needs the simulator, which is not part of this installation" in line
    assert "pip install 'pod-gpu-metrics-exporter[demo]', or `make run` in a checkout" in line


def test_all_else_works_without_the_simulator(without_simulator: dict[str, str]) -> None:
    every_help = in_environment(without_simulator, "--help-all")
    usages = [line.split()[2] for line in every_help.stdout.splitlines() if line.startswith("Usage: ")]
    assert usages == [name for name in COMMANDS if name != "demo"]
    bundle = ROOT / "tests/bundles/kubelet-1.20.tar.gz"
    assert in_environment(without_simulator, "bundle", "show", str(bundle)).returncode == 0
    mistyped = in_environment(without_simulator, "top", "--gpus", "4")
    assert (mistyped.returncode, mistyped.stderr.count("\n")) == (2, 1)
    completing = {**without_simulator, "_POD_GPU_METRICS_EXPORTER_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    completed = in_environment({**completing, "COMP_WORDS": "pod-gpu-metrics-exporter demo --g"})
    assert completed.stderr == ""


def in_environment(environ: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """How a command ends in an environment. -P: the folder that a test runs in, the checkout, is not on the path."""
    command = [sys.executable, "-P", "-m", "exporter", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
