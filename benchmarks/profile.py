"""`make profile`: the parts that take the time of a steady scrape, by py-spy, as a listing and a flame graph.

The flame graph is profile.svg. Each of py-spy's samples counts for the innermost frame of one of the PARTS.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.scrape import Process, peers

SECONDS, SAMPLES_A_SECOND = 30, 250
SVG = "profile.svg"
PARTS = {
    "the join": r"\(exporter/exposition/(cuts|plain|join)\.py",
    "whose device it is": r"\(exporter/(ownership|usage|dividing)/",
    "the exporter's own families": r"\(exporter/(outputs/|exposition/families|telemetry)",
    "reading dcgm-exporter: aiohttp's client": r"\(aiohttp/(client|connector|streams)",
    "reading dcgm-exporter: the source": r"\(exporter/sources/(pages/|single_flight|http|unpack)",
    "the kubelet": r"\(exporter/sources/kubelet|\(grpc/",
    "the node: waiting for sources, the snapshot": r"\(exporter/(node/|service\.py)",
    "answering: aiohttp's server": r"\(aiohttp/",
    "answering: paths, headers, limits": r"\(exporter/web/",
    "the event loop and its sockets": r"\(asyncio/|\(selectors\.py",
}


WAITING = re.compile(r"select \(selectors\.py|\(threading\.py")


def part_of(stack: str) -> str:
    """The part for which a stack is counted. A stack's frames are separated by ; and the outermost is first."""
    for frame in reversed(stack.split(";")):
        for name, pattern in PARTS.items():
            if re.search(pattern, frame):
                return name
    return "other"


def record(process: Process, form: str, to: str) -> float:
    """Scrape as fast as possible while py-spy samples. Return the CPU seconds of a scrape."""
    spy = Path(sys.executable).parent / "py-spy"
    options = [f"--rate={SAMPLES_A_SECOND}", f"--duration={SECONDS}", f"--pid={process.pid}", f"--format={form}"]
    looking = subprocess.Popen([spy, "record", *options, f"--output={to}"], stdout=subprocess.DEVNULL)
    before, scrapes = process.cpu_seconds(), 0
    while looking.poll() is None:
        process.scrape()
        scrapes += 1
    if looking.returncode:
        sys.exit("py-spy may not look at a process here: it needs ptrace (root, or CAP_SYS_PTRACE)")
    return (process.cpu_seconds() - before) / scrapes


def listing(stacks: list[str], scrape_seconds: float) -> str:
    """The microseconds of a scrape that each part takes. `stacks` are py-spy's raw lines: a stack, a blank, a count.

    Stacks that wait for sockets or in gRPC's threads are left out, since py-spy counts some waiting as work.
    """
    counts: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if not WAITING.search(stack):
            counts[part_of(stack)] += int(count)
    total = counts.total()
    rows = [f"{count / total * scrape_seconds * 1e6:5.0f}  {name}" for name, count in counts.most_common()]
    return "\n".join([*rows, f"{scrape_seconds * 1e6:5.0f}  us of CPU in all"])


if __name__ == "__main__":
    with peers() as (*_others, exporter), tempfile.NamedTemporaryFile() as raw:
        for _ in range(300):
            exporter.scrape()
        seconds = record(exporter, "raw", raw.name)
        print(listing(Path(raw.name).read_text().splitlines(), seconds))
        record(exporter, "flamegraph", SVG)
        print(f"the flame graph: {SVG}")
