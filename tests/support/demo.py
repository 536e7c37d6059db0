"""`demo` as a process, as a user starts it."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def demo(*arguments: str) -> Iterator[str]:
    """Where it answers (http://…), once it does; until the block ends."""
    command = [sys.executable, "-m", "exporter", "demo", "--web.listen-address=127.0.0.1:0", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        url = ""
        for line in process.stderr:
            if found := re.search(r"http://localhost:(\d+)/", line):
                url = f"http://127.0.0.1:{found[1]}"
            if "Ctrl-C" in line:
                break
        yield url
    finally:
        process.kill()
        process.communicate()
