"""`demo` as a process, as a user starts it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def demo(*arguments: str) -> Iterator[str]:
    """Where it answers (http://…), once it does; until the block ends."""
    with printing_demo(*arguments) as lines:
        yield next(f"http://127.0.0.1:{at[1]}" for line in lines if (at := re.search(r"http://localhost:(\d+)/", line)))


@contextmanager
def printing_demo(*arguments: str) -> Iterator[list[str]]:
    """The lines that it prints up to the last one, which says how to end it; until the block ends."""
    command = [sys.executable, "-m", "exporter", "demo", "--web.listen-address=127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        yield lines
    finally:
        process.kill()
        process.communicate()
