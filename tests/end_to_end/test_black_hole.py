"""A dead API server is noticed though nothing says that it is dead."""

import asyncio
import os
import subprocess
import sys

import pytest

from tests.support.components import real
from tests.support.places import ROOT

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]


# issue 7, line 6
async def test_a_watch_into_a_black_hole_is_noticed_within_45_seconds() -> None:
    for program in ("unshare", "nsenter", "ip"):
        real(program)
    if os.geteuid() != 0:
        real("root-to-make-network-namespaces-with")
    process = await asyncio.create_subprocess_exec(
        "unshare", "--net", sys.executable, "-m", "tests.end_to_end.black_hole",
        stdout=subprocess.PIPE, cwd=ROOT,
    )  # fmt: skip
    try:
        async with asyncio.timeout(100):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    lines = dict(line.split(" ", 1) for line in output.decode().splitlines())
    assert lines.keys() == {"watch", "request"}
    for what, line in lines.items():
        seconds, _, says = line.partition(" ")
        assert 10 < float(seconds) < 45, (what, line)
        assert "the Kubernetes API at http://192.0.2.2:6443" in says
    assert "nothing has come back for 30 s" in lines["watch"]
