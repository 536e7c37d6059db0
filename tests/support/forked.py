"""Programs of this repository that start in a tenth of a second, as processes of their own.

Most of what a start takes, a second of a CPU, is imports. A server process imports once what the programs need
(`multiprocessing`'s forkserver), and forks for each start. The process is real: it has its own memory, event loop and
signals. A test about the start itself (`python -m exporter`, another user, another clock) starts an interpreter.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.context import ForkServerProcess
from pathlib import Path

_SERVER = multiprocessing.get_context("forkserver")
# with pytest, since multiprocessing imports the parent's main script anew in each fork
_SERVER.set_forkserver_preload(
    [
        "pytest",
        "exporter.cli.main",
        "exporter.cli.serve",
        "exporter.cli.textfile",
        "exporter.operator.command",
        "exporter.cluster.role",
        "exporter.simulator.demo",
        "exporter.simulator.scheduler",
        "exporter.simulator.simulated_node",
        "tests.support.kubelet_process",
    ]
)


class Forked:
    """One process, with the parts of `asyncio.subprocess.Process` that a test needs."""

    def __init__(self, main: Callable[[list[str]], int | None], words: Sequence[str], log: Path) -> None:
        """Start `main(words)`, a function of a module. What it writes to stdout and stderr goes to the file `log`."""
        log.touch()
        self._process: ForkServerProcess = _SERVER.Process(
            target=_run, args=(main, list(words), log, dict(os.environ)), daemon=True
        )
        self._process.start()

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def returncode(self) -> int | None:
        """The exit code as of a subprocess, -9 after SIGKILL; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    async def wait(self) -> int:
        return await asyncio.to_thread(self.join)

    def join(self, seconds: float | None = None) -> int:
        """Wait until it has ended. Returns the exit code.

        Raises:
            AssertionError: it has not ended after so many seconds.
        """
        self._process.join(seconds)
        code = self.returncode
        assert code is not None, "the process has not ended"
        return code


def _run(main: Callable[[list[str]], int | None], words: list[str], log: Path, environment: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.exit(main(words))
