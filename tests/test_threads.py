"""Threads that keep no process: what is asked of them, and how many there are."""

import asyncio
import subprocess
import sys
import threading

import pytest

from exporter.threads import MOST_THREADS, DaemonThreads
from tests.support.waiting import until


# issue 15, line 22
def test_a_call_that_hangs_keeps_neither_the_loop_nor_the_process() -> None:
    code = (
        "import asyncio, threading; from exporter.threads import use_daemon_threads\n"
        "async def main():\n"
        "    use_daemon_threads()\n"
        "    asyncio.get_running_loop().run_in_executor(None, threading.Event().wait)\n"
        "    return await asyncio.to_thread(sum, (1, 2))\n"
        "print(asyncio.run(main()))"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=30, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "3\n", "")


# issue 15, line 22
async def test_calls_have_a_thread_each_up_to_the_limit_and_then_wait() -> None:
    threads, may_end = DaemonThreads(), threading.Event()
    loop = asyncio.get_running_loop()
    began: list[str] = []

    def call(number: int) -> int:
        began.append(threading.current_thread().name)
        may_end.wait()
        return number

    calls = [loop.run_in_executor(threads, call, number) for number in range(MOST_THREADS + 3)]
    await until(lambda: len(began) == MOST_THREADS)
    assert len(set(began)) == MOST_THREADS
    calls.pop().cancel()
    may_end.set()
    assert await asyncio.gather(*calls) == list(range(MOST_THREADS + 2))
    assert len(set(began)) == MOST_THREADS
    with pytest.raises(ZeroDivisionError):
        await loop.run_in_executor(threads, divmod, 1, 0)
