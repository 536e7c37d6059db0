"""A command of the program in the tests' own process: a process of its own takes half a second to start."""

import io
import os
import subprocess
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from exporter.cli.main import run


def run_here(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """How a command ends, and what it prints; `environ` is more of its environment."""
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with patch.dict(os.environ, environ), redirect_stdout(out), redirect_stderr(err):
        try:
            code = run(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
    return subprocess.CompletedProcess(arguments, code, *(file.buffer.getvalue().decode() for file in (out, err)))
