"""Programs that end with whoever started them: at the end of a block, on Ctrl-C, on SIGTERM and on a crash."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE_SECONDS = 5.0


def _dies_with_parent() -> Sequence[str]:
    """What stands before a command so that the kernel kills it if this program is killed; nothing without setpriv.

    Code between fork and exec (preexec_fn) crashes now and then beside gRPC's threads.
    """
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()


class Children:
    """Started programs. Each has a session of its own, so Ctrl-C reaches the parent alone, which ends them."""

    def __init__(self) -> None:
        self._running: list[asyncio.subprocess.Process] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.shield(asyncio.gather(*(self.end(process) for process in self._running)))

    async def start(
        self,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str],
        output: Path,
        log: Path | None = None,
        takes_input: bool = False,
    ) -> asyncio.subprocess.Process:
        """Start a program. Its standard output goes to a file, its standard error to `log`, or to the same file."""
        with output.open("ab") as stdout, (log or output).open("ab") as stderr:
            process = await asyncio.create_subprocess_exec(
                *_dies_with_parent(),
                *command,
                stdin=asyncio.subprocess.PIPE if takes_input else asyncio.subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                env=dict(environment),
                start_new_session=True,
            )
        self._running.append(process)
        return process

    async def end(self, process: asyncio.subprocess.Process) -> None:
        """End a program and whatever it has started; at once if it does not end in time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), _PATIENCE_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those of its group that it has left behind


async def output_of(
    command: Sequence[str | Path], *, environment: Mapping[str, str], seconds: float
) -> tuple[int, bytes]:
    """The exit code and the standard output of a program; 124 if it takes too long, 127 if it is not there."""
    try:
        process = await asyncio.create_subprocess_exec(
            *_dies_with_parent(),
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
        )
    except OSError:
        return 127, b""
    try:
        async with asyncio.timeout(seconds):
            printed, _ = await process.communicate()
    except TimeoutError:
        return 124, b""
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, printed
