"""What `demo` prints as commands to type is typed, as it is written."""

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from aiohttp import ClientSession

from exporter.config.node_settings import Config
from exporter.log import LOG
from exporter.simulator.demo import running
from exporter.simulator.simulated_node import SimulatedNode
from exporter.simulator.world import World
from tests.support.command import run_here
from tests.support.demo import printing_demo
from tests.support.exporter import config_of
from tests.support.waiting import until, wait_until

PROGRAM = "pod-gpu-metrics-exporter"
_COMMAND = re.compile(rf"^  ((?:\S*{PROGRAM}|curl) .*)$")

# What the answer to a command shows, by a part of the command.
SHOWS = {
    " top ": r"\d+ GPUs",
    "/gpu/metrics": r'pod="[a-z0-9-]+".* \d',
    "/container/metrics": r"^\[\{.*",
    "/events": r"^\[",
    "/autoscale/": r'^\{"value": [1-9]',
}
# a node's answer about a pod that it sees before the API has named it
NOT_YET = "does not say what pod"


def commands_of(lines: list[str]) -> list[str]:
    return [typed[1] for line in lines if (typed := _COMMAND.match(line))]


def run(command: str, folder: Path) -> str:
    """Run a command in a folder that has the program under its name. Returns what it prints.

    A command of the program that needs no shell runs in this process.
    """
    words = shlex.split(command)
    if words[0].endswith(PROGRAM) and shlex.join(words) == command:
        here = run_here(*words[1:])
        return here.stdout + here.stderr
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m exporter "$@"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    path = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    ended = subprocess.run(["bash", "-c", command], env=path, capture_output=True, text=True, timeout=60, check=False)
    return ended.stdout + ended.stderr


def wait_for(command: str, folder: Path) -> None:
    """Until it shows what it should."""
    (wanted,) = (wanted for part, wanted in SHOWS.items() if part in command)
    wait_until(lambda: re.search(wanted, run(command, folder)), why=lambda: (command, run(command, folder)[-500:]))


# issue 22, line 16
@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        (["--gpus=4"], 4),
        (["--gpus=4", "--generation=4.9"], 4),
        (["--nodes=5", "--seed=7"], 3),
        (["--nodes=2", "--gpus=4", "--mig=2"], 3),
        # nobody has a whole GPU: there is no number for an autoscaler that is right
        (["--nodes=2", "--gpus=2", "--shared=2"], 2),
        # issue 24, part 6
        (["--allocator=hami"], 4),
        (["--allocator=kai"], 4),
        (["--allocator=ascend"], 3),
        (["--nodes=2", "--gpus=4", "--allocator=volcano"], 2),
        # names in small letters
        (["--allocator=gpushare", "--generation=1"], 4),
    ],
    ids=str,
)
def test_each_command_that_demo_prints_works(arguments: list[str], count: int, tmp_path: Path) -> None:
    with printing_demo(*arguments) as lines:
        commands = commands_of(lines)
        assert len(commands) == count
        for command in commands:
            wait_for(command, tmp_path)


# issue 22, line 16
def test_an_answer_to_an_autoscaler_stays_right_while_pods_come_and_go(tmp_path: Path) -> None:
    """0 or 404 would be no fault of the command: there is a replica of the service, whoever else goes.

    A node that does not know yet whose a new pod is says so, and that is no answer.
    """
    with printing_demo("--nodes=5", "--speed=60") as lines:
        (command,) = (command for command in commands_of(lines) if "/autoscale/" in command)
        wait_for(command, tmp_path)
        answers = [json.loads(run(command, tmp_path)) for _ in range(20)]
        wait_until(lambda: "value" in json.loads(run(command, tmp_path)))
    unknown = [answer for answer in answers if "value" not in answer and not answer.get("missing_nodes")]
    assert [answer["error"] for answer in unknown if NOT_YET not in answer["error"]] == []


# issue 22, line 16
async def test_a_line_of_the_log_says_which_node_it_is_about(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [SimulatedNode(World(gpus=1), f"gpu-node-{number}") for number in (1, 2)]
    lost = nodes[1]

    def config_of_node(node: SimulatedNode) -> Config:
        return config_of(kubelet_socket=str(node.socket), dcgm_url=node.url, node_name=node.api.node_name)

    with caplog.at_level("INFO", LOG.name):
        async with running(nodes, config_of_node) as (_, urls), ClientSession() as session:

            async def answers(wanted: str) -> bool:
                for url in urls.values():
                    async with session.get(f"{url}/gpu/metrics") as answer:
                        await answer.read()
                return any(record.getMessage() == wanted for record in caplog.records)

            await until(lambda: answers("source answers"))
            await lost.kubelet.stop()
            await until(lambda: answers("source failed"))
        lines = [(record.getMessage(), vars(record).get("fields", {})) for record in caplog.records]
    assert {fields.get("node") for _, fields in lines} == {"gpu-node-1", "gpu-node-2"}
    ((failed),) = [fields for message, fields in lines if message == "source failed"]
    assert (failed["node"], failed["source"], bool(failed["reason"])) == ("gpu-node-2", "kubelet", True)


# issue 22, line 16
def test_each_line_of_demos_log_has_its_fields() -> None:
    command = [sys.executable, "-m", "exporter", "demo", "--nodes=2", "--web.listen-address=127.0.0.1:0"]
    with subprocess.Popen([*command, "--log.level=info"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if "source answers" in line or line.strip() == "source failed":
                break
        process.terminate()
        seen += process.stderr
    events = [line for line in seen if line.startswith(("source", "ts="))]
    assert any("source" in line for line in events)
    assert [
        line for line in events if not re.match(r'ts=\S+ level=\w+ msg=("[^"]+"|\S+)( \w+=("[^"]*"|\S+))*$', line)
    ] == []
