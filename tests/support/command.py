"""A command of the program in the tests' own process: a process of its own takes half a second to start."""

import io
import logging
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from unittest.mock import patch

from exporter.cli.main import run
from exporter.log import LOG


def run_here(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command. Returns its exit code and what it printed; `environ` is added to the environment."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with _log_as_before(), patch.dict(os.environ, environ), redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, *(file.buffer.getvalue().decode() for file in (out, err)))


@contextmanager
def _log_as_before() -> Iterator[None]:
    """Put levels and handlers of the log, pytest's among them, back after a command that starts the program's log."""
    root = logging.getLogger()
    level, root_level, handlers = LOG.level, root.level, root.handlers[:]
    try:
        yield
    finally:
        LOG.setLevel(level)
        root.setLevel(root_level)
        root.handlers[:] = handlers
