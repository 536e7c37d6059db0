"""`doctor` in the tests' own process, or in a thread of it, so that an exporter in the test's event loop can answer."""

import asyncio
import subprocess
from unittest.mock import patch

from exporter.doctor import command
from tests.support.command import run_here


def doctor_here(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `doctor`. Returns its exit code and what it printed. A bundle costs the process none of its priority."""
    with patch.object(command, "_spare_the_exporter"):
        return run_here("doctor", *arguments, **environ)


async def doctor_in_thread(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same in a thread: the event loop goes on."""
    return await asyncio.to_thread(doctor_here, *arguments, **environ)
