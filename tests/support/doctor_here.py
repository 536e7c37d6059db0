"""`doctor` in the tests' own process: in a thread, so that an exporter in the test's event loop answers it."""

import asyncio
import subprocess
from unittest.mock import patch

from exporter.doctor import command
from tests.support.command import run_here


def doctor_here(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """How it ends, and what it prints. Making a bundle, it does not put the tests behind all that runs beside them."""
    with patch.object(command, "_spare_the_exporter"):
        return run_here("doctor", *arguments, **environ)


async def doctor_in_thread(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The same without keeping the event loop."""
    return await asyncio.to_thread(doctor_here, *arguments, **environ)
