"""A real cgroup of version 1 that refuses every device: what doctor says of it, and what device-access does to it."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CONTROLLER = Path("/sys/fs/cgroup/devices")
# a program that goes into the cgroup, and then says by JSON what an expression is
_WITHIN = """
import json, os, sys
from pathlib import Path
Path(sys.argv[1], "cgroup.procs").write_text(str(os.getpid()))
{code}
print(json.dumps(answer))
"""


@contextmanager
def device_cgroup() -> Iterator[Path]:
    """Its folder. Where there is no such controller, or no right to it, the test is skipped; in CI it fails."""
    folder = CONTROLLER / f"pod-gpu-test-{uuid.uuid4().hex}"
    try:
        folder.mkdir()
    except OSError as error:
        why = f"no cgroup of version 1 for devices can be made here ({error}): run this as root where there is one"
        if os.environ.get("CI") == "true":
            pytest.fail(why)
        pytest.skip(why)
    try:
        (folder / "devices.deny").write_text("a *:* rwm")
        yield folder
    finally:
        folder.rmdir()


def within(folder: Path, code: str, *arguments: str) -> Any:
    """What `answer` is after this code has run in a process in the cgroup, which ends with it."""
    program = _WITHIN.format(code=code)
    ended = subprocess.run(
        [sys.executable, "-c", program, str(folder), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
