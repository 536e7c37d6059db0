"""`demo` as a process."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from exporter.cli.main import run
from tests.support.forked import Forked
from tests.support.waiting import wait_until


@contextmanager
def demo(*arguments: str) -> Iterator[str]:
    """Where it answers (http://…), once it does; until the block ends."""
    with printing_demo(*arguments) as lines:
        yield next(f"http://127.0.0.1:{at[1]}" for line in lines if (at := re.search(r"http://localhost:(\d+)/", line)))


@contextmanager
def printing_demo(*arguments: str) -> Iterator[list[str]]:
    """The lines that it prints up to the last one, which says how to end it; until the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        process = Forked(run, ["demo", "--web.listen-address=127.0.0.1:0", *arguments], log)
        try:

            def lines() -> list[str]:
                assert process.returncode is None, log.read_text()
                return log.read_text().splitlines(keepends=True)

            def last() -> list[int]:
                return [number for number, line in enumerate(lines()) if "Ctrl-C" in line and line.endswith("\n")]

            number = wait_until(last, why=log.read_text)[0]
            yield lines()[: number + 1]
        finally:
            process.kill()
            process.join()
