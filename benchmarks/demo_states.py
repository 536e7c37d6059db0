"""Watches a demo of many nodes: the parts of its GPUs in each state, minute by minute, and its CPU and memory.

python -m benchmarks.demo_states [--minutes 30] [ARGUMENT OF demo …]

starts `demo --nodes 40` with the arguments, asks the cluster role every few seconds, and prints a line a minute: the
share of devices in each state, the share of the held devices that are used, CPU and memory. The exit code is 1 if
a state was not seen, or if in a minute after the first three fewer than 40 % or more than 80 % of the held devices were
used.

While a node's kubelet is away and no holder of a GPU is known there, the cluster role calls the node missing and leaves
its devices out. Then the node's own exporter is asked, which calls each device `unknown`.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from email.message import Message
from pathlib import Path

from exporter.model.device_row import DeviceRow, from_objects
from exporter.model.states import IN_HAND, DeviceState, state_of_device

LOOKS_APART = 3.0
LEAST_USED, MOST_USED = 0.4, 0.8
UNSETTLED_MINUTES = 3  # samples may still be older than the first pods, and trainings load their data
MOST_ROWS = 100_000
_TICKS = os.sysconf("SC_CLK_TCK")


def states_of(rows: Iterable[DeviceRow]) -> Counter[DeviceState]:
    """The number of devices in each state. A GPU is cut if rows name its instances, and no row is the GPU's own."""
    devices: dict[tuple[str, str], list[DeviceState]] = defaultdict(list)
    of_gpus: dict[tuple[str, str], set[bool]] = defaultdict(set)
    for row in rows:
        devices[row.node_name, f"{row.device_id}/{row.mig_instance_id}"].append(row.state)
        of_gpus[row.node_name, row.device_id].add(bool(row.mig_instance_id))
    cut = sum(of_gpu == {True} for of_gpu in of_gpus.values())
    return Counter(map(state_of_device, devices.values())) + Counter({DeviceState.CUT: cut})


def used_of_held(states: Mapping[DeviceState, int]) -> float:
    """The share (0 to 1) of the held devices that are used."""
    held = sum(states.get(state, 0) for state in IN_HAND)
    return states.get(DeviceState.USED, 0) / held if held else 0.0


def look(url: str, exporters: Mapping[str, str], seen: set[str]) -> Counter[DeviceState]:
    """The number of devices in each state now. Raises OSError if there is no answer.

    `exporters` are the URLs of the nodes' own exporters, by the names of the nodes. `seen` are the nodes whose devices
    the cluster role has shown, to which this look's nodes are added. A missing node that is not among them only starts.
    """
    rows, headers = _ask(url)
    seen.update(row.node_name for row in rows)
    for name in seen.intersection(headers.get("X-Missing-Nodes", "").split(", ")):
        rows += _ask(exporters[name])[0]
    return states_of(rows)


def _ask(url: str) -> tuple[list[DeviceRow], Message]:
    with urllib.request.urlopen(f"{url}/container/metrics", timeout=30) as answer:
        return [*from_objects(json.load(answer), MOST_ROWS)], answer.headers


def watch(url: str, exporters: Mapping[str, str], pid: int, minutes: int) -> int:
    """Print the table. Return the exit code."""
    seen: set[str] = set()
    every_state: Counter[DeviceState] = Counter()
    odd: list[str] = []
    cpu, began = _cpu_seconds(pid), time.monotonic()
    print("minute  " + "".join(f"{state:>9}" for state in DeviceState) + "  used/held  cores     MiB", flush=True)
    for minute in range(1, minutes + 1):
        states: Counter[DeviceState] = Counter()
        while time.monotonic() < began + 60 * minute:
            time.sleep(LOOKS_APART)
            try:
                states += look(url, exporters, seen)
            except OSError as error:
                print(f"no answer: {error}", flush=True)
        every_state += states
        used = used_of_held(states)
        if minute > UNSETTLED_MINUTES and not LEAST_USED <= used <= MOST_USED:
            odd.append(f"minute {minute}: {used:.0%} of the held devices are used")
        cpu, before = _cpu_seconds(pid), cpu
        shares = "".join(f"{states[state] / max(1, states.total()):9.1%}" for state in DeviceState)
        cores, memory = (cpu - before) / 60, _rss_mib(pid)
        print(f"{minute:6}  {shares}  {used:9.0%}  {cores:5.2f}  {memory:6.0f}", flush=True)
    odd += [f"{state}: never seen" for state in DeviceState if not every_state[state]]
    print("\n".join(odd or ["every state was seen, and 40 to 80 % of the held devices were used"]), flush=True)
    return int(bool(odd))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS  # utime and stime, proc(5)


def _rss_mib(pid: int) -> float:
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


def main() -> int:
    """Start the demo, watch it, and end it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.demo_states")
    parser.add_argument("--minutes", type=int, default=30)
    asked, of_demo = parser.parse_known_args()
    command = [sys.executable, "-m", "exporter", "demo", "--nodes=40", "--web.listen-address=127.0.0.1:0", *of_demo]
    with tempfile.NamedTemporaryFile("r") as log, subprocess.Popen(command, stderr=Path(log.name).open("w")) as process:
        try:
            while "Ctrl-C ends it" not in (text := log.read()):
                assert process.poll() is None
                log.seek(0)
                time.sleep(1)
            (address,) = set(re.findall(r"http://localhost:\d+", text.partition("top --url")[0]))
            exporters = {name: url for url, name in re.findall(r"(http://127\S+)/ +(\S+)", text)}
            return watch(address, exporters, process.pid, asked.minutes)
        finally:
            process.terminate()


if __name__ == "__main__":
    sys.exit(main())
