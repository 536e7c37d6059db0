"""A fork for each job, a few at a time, each with a limit on the time that it takes of a CPU."""

import os
import resource
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

BYTES = 6 * 2**30
"""The memory that a fork may take: a changed loop may never end, and remember each round."""
ENDED = "ended: it took too long, too much memory, or the process with it"


def in_forks(
    jobs: Sequence[float], run: Callable[[int], str], at_once: int, *, quiet: bool = True
) -> Iterator[tuple[int, str]]:
    """Run each job in a fork, with its number as the argument. `jobs` has the seconds of CPU that each one may take.

    Yields the number of each job that ends, with the text that it returned; ENDED if it returned none. With `quiet`
    what it prints is lost.
    """
    with tempfile.TemporaryDirectory() as folder:
        waiting = list(enumerate(jobs))[::-1]
        running: dict[int, int] = {}
        while waiting or running:
            while waiting and len(running) < at_once:
                number, seconds = waiting.pop()
                answer = Path(folder, str(number))
                pid = os.fork()
                if not pid:
                    _run(run, number, answer, seconds, quiet=quiet)
                running[pid] = number
            pid, _ = os.wait()
            number = running.pop(pid)
            answer = Path(folder, str(number))
            yield number, answer.read_text() if answer.exists() else ENDED


def _run(run: Callable[[int], str], number: int, answer: Path, seconds: float, *, quiet: bool) -> None:
    """Do a job in this process, which ends with it."""
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 2))
        resource.setrlimit(resource.RLIMIT_DATA, (BYTES, BYTES))
        if quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        text = run(number)
        written = answer.with_suffix(".new")
        written.write_text(text)
        written.rename(answer)
    except BaseException:  # noqa: BLE001 - the caller's code must not run twice, whatever comes
        traceback.print_exc()
    finally:
        os._exit(0)
