"""A disk that hangs: the exporter as a process ends all the same when it is told to."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from tests.support.simulated import SimulatedNode
from tests.support.waiting import until

# What hangs is called on threads; in this process it never comes back.
HANGS = """
import importlib, runpy, sys, threading
module, name = sys.argv.pop(1).split(":")
def hang(*_, **__):
    print("hangs", file=sys.stderr, flush=True)
    threading.Event().wait()
setattr(importlib.import_module(module), name, hang)
runpy.run_module("exporter", run_name="__main__", alter_sys=True)
"""


# issue 15, line 22
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_state_disk_that_hangs_keeps_no_process(
    simulated: SimulatedNode, tmp_path: Path, number: signal.Signals
) -> None:
    places = [f"--kubelet.socket={simulated.socket}", f"--dcgm.url={simulated.url}"]
    state = [f"--accounting.state={tmp_path / 'state'}", "--accounting.interval=1s"]
    command = [sys.executable, "-c", HANGS, "os:fsync", "serve", *places, *state, "--web.listen-address=127.0.0.1:0"]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    assert process.stderr
    try:
        while (line := await process.stderr.readline()) and b"hangs" not in line:
            pass
        assert line
        process.send_signal(number)
        await until(lambda: process.returncode is not None)
        assert process.returncode == 0
        log = (await process.stderr.read()).decode()
        assert "level=error" not in log
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


# issue 15, line 22
async def test_a_start_on_a_disk_that_hangs_ends_with_a_line(simulated: SimulatedNode, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.write_bytes(b"counters of a year")
    places = [f"--kubelet.socket={simulated.socket}", f"--dcgm.url={simulated.url}", f"--accounting.state={state}"]
    command = [sys.executable, "-c", HANGS, "exporter.node.state_file:open_regular", "serve", *places]
    process = await asyncio.create_subprocess_exec(
        *command, "--web.listen-address=127.0.0.1:0", stderr=asyncio.subprocess.PIPE
    )
    log = (await process.communicate())[1].decode()
    assert process.returncode not in {0, None}
    assert "has not been read for 5 s; is it on a file system that hangs" in log
    assert "Traceback" not in log
    assert state.read_bytes() == b"counters of a year"
