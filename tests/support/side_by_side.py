"""pytest several times, side by side: `python -m tests.support.side_by_side COMMAND… + MORE… + MORE…`.

A run is the command with the arguments after one `+`. Runs begin in their order, AT_ONCE at the same time, and more
while the processors rest. A run's output is shown when it ends. Then come the ten slowest tests of all runs, the time,
and how many passed and failed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

AT_ONCE = 2 * (os.cpu_count() or 1)
"""Two for each processor: tests wait for half of their time, for a program or a peer."""
MOST_AT_ONCE = 3 * (os.cpu_count() or 1)
"""A third for each processor, while they rest: a quick machine waits for more of the time.

On a slow one all takes longer with three: what a test has started, such as a Prometheus that scrapes each second, works
for as long as the test waits.
"""
BUSY = 0.9
"""Processors that worked for less of the time rest."""
SECONDS_OF_A_LOOK = 5
SECONDS_BETWEEN_POLLS = 0.05
SLOWEST = 10
MOST_OF_A_NAME = 80
ROOM_IN_MEMORY = 4 * 2**30
_CODE_WITHOUT_TESTS = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One pytest that has been started."""

    name: str
    process: subprocess.Popen[bytes]
    began: float
    """By the monotonic clock."""
    output: IO[bytes]
    folder: Path
    """Where pytest writes its JUnit XML and its cache."""

    @property
    def report(self) -> Path:
        return self.folder / "report.xml"


@dataclass(slots=True)
class Total:
    """The figures of all runs together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: list[tuple[float, str]] = field(default_factory=list)
    """How long each test took with its fixtures, and its name."""

    def add(self, report: Path) -> None:
        """Count a run's tests. A run that broke off before its end has no report: its exit code says so."""
        if not report.exists():
            return
        for suite in ET.parse(report).getroot().iter("testsuite"):  # noqa: S314 - pytest wrote it
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += int(suite.get("tests", 0)) - failed - skipped
            for test in suite.iter("testcase"):
                place = test.get("classname", "").replace(".", "/")
                self.seconds.append((float(test.get("time", 0)), f"{place}.py::{test.get('name')}"))


def main(words: list[str]) -> int:
    """Run them. Returns the exit code: 1 where any run failed."""
    began, processors_before = time.monotonic(), _processor_ticks()
    lists: list[list[str]] = [[]]
    for word in words:
        if word == "+":
            lists.append([])
        else:
            lists[-1].append(word)
    command, *runs = lists if len(lists) > 1 else (*lists, [])
    with tempfile.TemporaryDirectory(prefix="", dir=_memory()) as folder:
        Path(folder).chmod(0o711)  # a test's program may run as nobody, and finds its files here
        ended, total = _all_of(command, runs, Path(folder))
        # a selection (-k) may leave a run without a test
        failed = [run for run in ended if run.process.returncode not in (0, _CODE_WITHOUT_TESTS)]
    _tell(total, time.monotonic() - began, _busy(processors_before, _processor_ticks()))
    return int(bool(failed) or not total.seconds)


def _memory() -> Path | None:
    """A file system in memory, for what the tests write; None without one of enough room.

    A virtual machine's disk took 2 ms for a folder with a file, memory 0.03 ms, and tests make thousands of them.
    """
    memory = Path("/dev/shm")  # noqa: S108 - what is made there has a name that nobody can know before
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < ROOM_IN_MEMORY:
        return None
    return memory


def _all_of(command: list[str], runs: list[list[str]], folder: Path) -> tuple[list[Run], Total]:
    """Run the command with each of the arguments. Returns the ended runs, and the figures of all together."""
    waiting = list(enumerate(runs))
    started: list[Run] = []
    ended: list[Run] = []
    total = Total()
    at_once, looked, ticks = AT_ONCE, time.monotonic(), _processor_ticks()
    while waiting or started:
        if time.monotonic() - looked > SECONDS_OF_A_LOOK:
            ticks_before, looked, ticks = ticks, time.monotonic(), _processor_ticks()
            at_once = how_many(len(started), _busy(ticks_before, ticks))
        while waiting and len(started) < at_once:
            number, arguments = waiting.pop(0)
            started.append(_start(command, arguments, folder / str(number)))
        time.sleep(SECONDS_BETWEEN_POLLS)
        for run in [run for run in started if run.process.poll() is not None]:
            started.remove(run)
            ended.append(run)
            _show(run)
            total.add(run.report)
    return ended, total


def how_many(running: int, busy: float) -> int:
    """How many may run at once, where `running` did so, and the processors worked for the share `busy` of the time."""
    if busy >= BUSY:
        return AT_ONCE
    return min(max(AT_ONCE, running + 1), MOST_AT_ONCE)


def _start(command: list[str], arguments: list[str], folder: Path) -> Run:
    """Start one pytest, with a cache of its own below `folder`."""
    output = tempfile.TemporaryFile()  # noqa: SIM115 - it goes with the program
    options = {"cache_dir": folder / "cache", "junit_logging": "no", "junit_family": "xunit1"}
    own = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
    process = subprocess.Popen(
        [*command, *arguments, *own, f"--junitxml={folder / 'report.xml'}"],
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(folder.parent)},
    )
    name = " ".join(arguments)
    if len(name) > MOST_OF_A_NAME:
        name = f"{name[:MOST_OF_A_NAME]}…"
    return Run(name, process, time.monotonic(), output, folder)


def _show(run: Run) -> None:
    """Print a run's output below its name and its time."""
    sys.stdout.write(f"\n{run.name}: {time.monotonic() - run.began:.0f} s\n")
    sys.stdout.flush()
    run.output.seek(0)
    sys.stdout.buffer.write(run.output.read())
    sys.stdout.flush()


def _processor_ticks() -> tuple[int, int]:
    """The ticks of all processors since the machine started: all, and those without work (/proc/stat)."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle, waiting_for_disk = ticks[3:5]
    return sum(ticks), idle + waiting_for_disk


def _busy(before: tuple[int, int], after: tuple[int, int]) -> float:
    """The share of the time between two readings in which the processors worked, for any program of the machine."""
    all_ticks, without_work = after[0] - before[0], after[1] - before[1]
    return 1 - without_work / max(1, all_ticks)


def _tell(total: Total, seconds: float, busy: float) -> None:
    """Print the slowest tests, the time, in how much of it the machine's processors worked, and the counts."""
    slowest = sorted(total.seconds, reverse=True)[:SLOWEST]
    lines = ["", f"The {len(slowest)} slowest tests, with their fixtures:"]
    lines += [f"{test_seconds:8.1f} s  {name}" for test_seconds, name in slowest]
    lines += [
        "",
        f"{int(seconds // 60)} min {seconds % 60:.0f} s; {os.cpu_count()} processors worked {busy:.0%} of the time",
        f"{total.passed} passed, {total.failed} failed, {total.skipped} skipped",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
