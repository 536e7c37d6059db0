"""`top` in a real terminal: it updates, sorts, filters, resizes, and leaves the terminal as it was however it ends."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fixed_exporter import FixedExporter, fixed, fixed_exporter
from tests.support.places import ROOT
from tests.support.tmux import Tmux, tmux

PROGRAM = shlex.join([sys.executable, "-m", "exporter", "top"])
SORT_LINE = -1


@pytest.fixture
def pane(tmp_path: Path) -> Iterator[Tmux]:
    with tmux(tmp_path, 80, 24) as pane:
        yield pane


@pytest.fixture
def exporter() -> Iterator[FixedExporter]:
    with fixed_exporter("node") as exporter:
        yield exporter


def started(pane: Tmux, url: str, *arguments: str) -> list[str]:
    pane.enter(f"{PROGRAM} --interval 100ms --url {url} {shlex.join(arguments)}; echo ended with $?")
    return pane.until_it_says("? help  q quit")


def gpus(screen: list[str]) -> list[str]:
    """The first word of each row of the table."""
    at = next(number for number, line in enumerate(screen) if line.startswith("GPU"))
    return [line.split()[0] for line in screen[at + 1 : SORT_LINE] if line.strip()]


# issue 12, "Must show" 2
@pytest.mark.real
def test_it_updates_sorts_filters_and_resizes(pane: Tmux, exporter: FixedExporter) -> None:
    started(pane, exporter.url)
    screen = pane.until_it_says("serving/eval-nightly-gsgkz")
    assert gpus(screen)[:2] == ["0", "1"]
    rows = fixed("node-metrics")
    rows[1].update(gpu_utilization=12, graphics_engine_active=0.12, pod="another")
    rows[1].pop("measured")
    exporter.say("/container/metrics", rows)
    screen = pane.until_it_says("serving/another")
    assert "12%" in next(line for line in screen if "another" in line)
    pane.type("u")
    screen = pane.until_it_says("sort utilization")
    assert gpus(screen)[0] == "2"
    pane.type("r")
    screen = pane.until(lambda screen: gpus(screen)[0] == "0")
    pane.type("g", "/")
    pane.run("send-keys", "-l", "jupyter")
    screen = pane.until_it_says("filter: jupyter_")
    pane.type("Enter")
    screen = pane.until(lambda screen: "jupyter" in screen[SORT_LINE])
    assert gpus(screen) == ["3", "3/10"]
    pane.type("Escape")
    pane.until(lambda screen: len(gpus(screen)) > 2)
    pane.resize(200, 50)
    pane.until(lambda screen: len(screen) == 50 and "q quit" in screen[49] and "Deployment/eval-nightly" in str(screen))
    pane.resize(30, 6)
    pane.until(lambda screen: len(screen) == 6 and screen[5].startswith(" every 0.1s"))
    pane.resize(10, 3)
    pane.until(lambda screen: len(screen) == 3 and screen[2] == " every 0.…")
    pane.resize(1, 1)
    pane.resize(80, 10)
    screen = pane.until(lambda screen: len(screen) == 10 and "1-6 of 16" in screen[9])
    pane.type("Down", "Down", "Down", "Down")
    pane.until_it_says("2-7 of 16")
    pane.type("End", "End")
    pane.until_it_says("11-16 of 16")
    pane.type("Home")
    pane.until_it_says("1-6 of 16")
    pane.type("q")
    pane.until_it_says("ended with 0")


@pytest.mark.real
def test_it_shows_processes_help_and_pauses(pane: Tmux, exporter: FixedExporter) -> None:
    started(pane, exporter.url)
    pane.type("p")
    pane.until_it_says("python3 -m eval")
    exporter.say("/processes", {"error": "--processes.expose is off"}, 403)
    pane.until_it_says("--processes.expose is off")
    pane.type("p", "?")
    pane.until_it_says("sort by utilization, memory, watts")
    pane.type("Space")
    pane.until_it_says("serving/eval-nightly-gsgkz")
    pane.type("Space")
    pane.until_it_says("paused")
    exporter.say("/container/metrics", [])
    asked = len(exporter.asked)
    time.sleep(0.3)
    assert len(exporter.asked) <= asked + 2, "a request was under way"
    pane.until_it_says("serving/eval-nightly-gsgkz")
    pane.type("Space")
    pane.until_it_says("no GPU is known")


# issue 32, "top"
@pytest.mark.real
def test_enter_shows_the_last_minutes_and_the_processes_of_a_line(pane: Tmux, exporter: FixedExporter) -> None:
    started(pane, exporter.url)
    pane.until_it_says("serving/eval-nightly-gsgkz")
    pane.type("Down", "Enter")
    screen = pane.until_it_says("python3 -m eval")
    assert screen[0].startswith("gpu-node-1  GPU 1  used  NVIDIA H100")
    at = next(number for number, line in enumerate(screen) if line.startswith("UTIL"))
    assert "64%" in screen[at]  # what is measured of its holder, as the state has it
    pane.until(lambda screen: any(line.rstrip().endswith(chart) for line in screen for chart in "▁▂▃▄▅▆▇█"))
    assert "Esc back" in screen[SORT_LINE]
    # the lines of GPU 2 follow, then those of its holders, who have processes of their own
    pane.type("Down", "Down")
    screen = pane.until(lambda screen: "GPU 2" in screen[0] and "eval-nightly-q2kk4" in "".join(screen))
    assert not any("finetune-llm" in line for line in screen)
    exporter.say("/processes", {"error": "--processes.expose is off"}, 403)
    pane.until_it_says("--processes.expose is off")
    pane.type("Escape")
    pane.until_it_says("serving/eval-nightly-gsgkz")


@pytest.mark.real
def test_an_exporter_that_goes_away_is_said_in_one_line_and_it_goes_on(pane: Tmux) -> None:
    with fixed_exporter("cluster") as exporter:
        started(pane, exporter.url)
        pane.until_it_says("research/trainer-8p77d")
    screen = pane.until_it_says("no exporter answers at")
    assert any("research/trainer-8p77d" in line for line in screen), "what it said last stays"
    with fixed_exporter("cluster", port=int(exporter.url.rpartition(":")[2])):
        pane.until(lambda screen: not any("no exporter answers" in line for line in screen))
    pane.type("q")
    pane.until_it_says("ended with 0")


WAYS = {
    "q": 0,
    "C-c": 0,
    "C-\\": 128 + signal.SIGQUIT,
    "SIGTERM": 128 + signal.SIGTERM,
    "SIGHUP": 128 + signal.SIGHUP,
    "the picture fails": 1,
    "the reader fails": 1,
}
# where a program has a fault that nobody knows of yet
FAULTS = {
    "the picture fails": "exporter.top.live.frame",
    "the reader fails": "exporter.top.transport.ShownReader.ask",
}
WITH_FAULT = """
import sys
from unittest.mock import Mock, patch
from exporter.cli.main import run
import exporter.top.live
with patch(sys.argv[1], Mock(side_effect=RuntimeError("a fault"))):
    sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.real
def test_the_terminal_is_as_it_was_however_it_ends(pane: Tmux, exporter: FixedExporter, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    (tmp_path / "fault.py").write_text(WITH_FAULT)
    pane.enter(f"cd {tmp_path}; export PYTHONPATH={ROOT}; stty -a > before")
    for number, (way, code) in enumerate(WAYS.items()):
        program = shlex.join([sys.executable, *(["fault.py", FAULTS[way]] if way in FAULTS else ["-m", "exporter"])])
        pane.enter("clear")
        pane.enter(f"sh -c 'echo $$ > pid; exec {program} top --url {exporter.url}'; echo way {number} ended with $?")
        if way not in FAULTS:
            pane.until_it_says("serving/eval-nightly-gsgkz")
            assert (pane.told("alternate_on"), pane.told("cursor_flag")) == ("1", "0")
        if way.startswith("SIG"):
            os.kill(int(pid.read_text()), signal.Signals[way])
        elif way not in FAULTS:
            pane.type(way)
        screen = pane.until_it_says(f"way {number} ended with {code}")
        assert "serving" not in "".join(screen), way
        assert any("RuntimeError: a fault" in line for line in screen) is (way in FAULTS), (way, screen)
        assert (pane.told("alternate_on"), pane.told("cursor_flag"), pane.told("wrap_flag")) == ("0", "1", "1"), way
        pane.enter("clear; stty -a | diff before - && echo 'terminal as' before")
        pane.until_it_says("terminal as before")


@pytest.mark.real
def test_it_stops_and_goes_on_as_the_shell_wants(pane: Tmux, exporter: FixedExporter) -> None:
    started(pane, exporter.url)
    pane.type("C-z")
    pane.until(lambda screen: any("Stopped" in line for line in screen))
    assert (pane.told("alternate_on"), pane.told("cursor_flag")) == ("0", "1")
    pane.enter("fg")
    pane.until_it_says("serving/eval-nightly-gsgkz")
    assert (pane.told("alternate_on"), pane.told("cursor_flag")) == ("1", "0")
    pane.type("q")
    pane.until(lambda screen: any("ended with" in line for line in screen) and pane.told("alternate_on") == "0")
