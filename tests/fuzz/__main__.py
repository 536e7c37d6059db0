"""`make fuzz SECONDS=600`: all targets side by side. Exit code 1 if one found an input that breaks its properties."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.fuzz import engine

TARGETS = ("exposition", "device_ids", "decoders", "annotations")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--runs", type=int, default=-1, help="the most inputs that each target tries; -1: any number")
    given = parser.parse_args()
    options = f"-max_total_time={given.seconds}", f"-runs={given.runs}"
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        running = []
        # one import for all: what watches the program takes longer to import than most inputs
        for target, one_input in engine.watched(TARGETS).items():
            log = Path(folder) / f"{target}.log"
            running.append((target, log, _forked(target, one_input, log, options)))
        failed = False
        for target, log, pid in running:
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            lines = log.read_text(errors="replace").splitlines()
            print(
                f"{target}: {next((line for line in reversed(lines) if line.startswith('Done')), f'exit code {code}')}"
            )
            if code:
                failed = True
                print("\n".join(lines[-60:]))
                for found in Path(folder).glob(f"{target}-*"):
                    if found.is_file() and found.suffix != ".log":
                        print(f"{found.name}: {found.read_bytes()!r}")
    sys.exit(1 if failed else 0)


def _forked(target: str, one_input: Callable[[bytes], None], log: Path, options: tuple[str, ...]) -> int:
    """The id of a process that fuzzes one target and writes to its log; inputs that break it are written beside."""
    if pid := os.fork():
        return pid
    file = os.open(log, os.O_CREAT | os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    corpus = log.with_suffix("")
    corpus.mkdir()
    try:
        engine.fuzz(target, one_input, corpus, *options, f"-artifact_prefix={corpus}-")
    finally:
        os._exit(1)


if __name__ == "__main__":
    main()
