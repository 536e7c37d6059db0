"""`make soak MINUTES=10`: churn, restarts and 20 scrapers, and what the program holds all the while.

A simulated month in minutes: every step, pods end and others start, MIG layouts and GPUs change their UUIDs, a label of
the page changes; now and then the kubelet or dcgm-exporter restarts, or the configuration is reloaded. Prints memory,
open files and threads over time, and ends with 1 if they grew.
"""

import argparse
import asyncio
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from exporter.outputs.node_outputs import OUTPUTS
from exporter.simulator.dcgm import SimulatedDcgm
from tests.faults.lab import Lab
from tests.support.exporter import STATUS
from tests.support.simulated import World

SCRAPERS = 20
STEP_SECONDS = 0.125
RESTARTS_APART_SECONDS = 2.5
# A day of pods that change every minute is 1,440 steps: what the program is to be the same after.
LOOKS = 20
# Memory is returned to the system in pieces: this much says nothing.
NOISE_TASKS = 40.0  # 20 scrapers, each with a connection and what it waits for; a leak a scrape is thousands
NOISE_MIB = 4.0
NOISE_THREADS = 3.0  # the pool of a busy machine is filled later; a leak a restart is more in a soak of minutes


@dataclass(frozen=True)
class Look:
    """What the process holds, some seconds after the start."""

    seconds: float
    resident_mib: float
    files: int
    threads: int
    tasks: int
    entries: int


class Soak:
    """One run."""

    def __init__(self, lab: Lab, pause_seconds: float) -> None:
        self.lab = lab
        self.pause_seconds = pause_seconds
        self.looks: list[Look] = []
        self.steps = self.restarts = self.answers = 0
        self.failures: list[str] = []
        self.is_over = False
        self._random = random.Random(1)

    async def run(self, seconds: float) -> None:
        """All of it."""
        workers = [asyncio.create_task(self._scrape(number)) for number in range(SCRAPERS)]
        workers.append(asyncio.create_task(self._churn()))
        restarts = asyncio.create_task(self._restart())
        began = time.monotonic()
        async with aiohttp.ClientSession() as session:
            # the first tenth is warming up: caches fill
            await asyncio.sleep(seconds / 10)
            for _ in range(LOOKS):
                await asyncio.sleep(seconds * 0.9 / LOOKS)
                self.looks.append(await self._look(session, time.monotonic() - began))
        for worker in workers:
            worker.cancel()
        # a server that is cancelled while it starts leaves its socket open
        self.is_over = True
        done = await asyncio.gather(*workers, restarts, return_exceptions=True)
        self.failures += [repr(each) for each in done if not isinstance(each, asyncio.CancelledError | None)]

    async def _scrape(self, number: int) -> None:
        """Each asks for something, some of them anew on a connection of their own every time."""
        # what is there only where a user has asked for it is not asked for
        paths = [output.path for output in OUTPUTS if not output.is_probe and output.path not in STATUS]
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=number % 4 == 0)) as session:
            while True:
                try:
                    async with session.get(self.lab.base + paths[number % len(paths)]) as response:
                        await response.read()
                        self.answers += 1
                        if response.status not in (200, 503):
                            self.failures.append(f"{paths[number % len(paths)]}: {response.status}")
                except aiohttp.ClientError as error:
                    self.failures.append(repr(error))
                await asyncio.sleep(self.pause_seconds)

    async def _churn(self) -> None:
        while True:
            self.steps += 1
            seed = self.steps if self.steps % 4 == 0 else self._random.randrange(4)
            world = self.lab.world
            if self.steps % 4 == 0:
                # other GPUs, other instances, other pods: no UUID of before comes back
                world = World(gpus=4, shared=1 + seed % 2, mig=1, seed=1000 + seed)
                self.lab.world = world
                self.lab.page = SimulatedDcgm(world, host_name=f"node-{seed}").page
            else:
                world.replace_all()
            self.lab.tell()
            await asyncio.sleep(STEP_SECONDS)

    async def _restart(self) -> None:
        while not self.is_over:
            await asyncio.sleep(RESTARTS_APART_SECONDS)
            self.restarts += 1
            match self.restarts % 3:
                case 0:
                    await self.lab.end_kubelet(self._random.choice((signal.SIGKILL, signal.SIGTERM)))
                    await asyncio.sleep(0.5)
                    await self.lab.start_kubelet(empty_seconds=0.2, partial_seconds=0.2)
                case 1:
                    await self.lab.upstream.stop()
                    await asyncio.sleep(0.5)
                    await self.lab.upstream.start()
                case 2:
                    config = self.lab.folder / "config.yaml"
                    config.write_text(f"kubelet.timeout: {3 + self.restarts % 4}s\n")
                    assert self.lab.exporter
                    self.lab.exporter.send_signal(signal.SIGHUP)

    async def _look(self, session: aiohttp.ClientSession, seconds: float) -> Look:
        assert self.lab.exporter
        process = Path(f"/proc/{self.lab.exporter.pid}")
        status = (process / "status").read_text()
        async with session.get(f"{self.lab.base}/metrics") as response:
            metrics = await response.text()
        used = re.findall(r"^pod_gpu_exporter_bound_used\{.*\} (\S+)$", metrics, re.MULTILINE)
        found = re.search(r"^pod_gpu_exporter_tasks (\S+)$", metrics, re.MULTILINE)
        return Look(
            seconds=seconds,
            resident_mib=_number(r"VmRSS:\s+(\d+)", status) / 1024,
            files=len(os.listdir(process / "fd")),  # noqa: PTH208 - names of numbers
            threads=int(_number(r"Threads:\s+(\d+)", status)),
            tasks=int(float(found[1])) if found else 0,
            entries=int(sum(map(float, used))),
        )


def _number(pattern: str, text: str) -> float:
    found = re.search(pattern, text)
    assert found, pattern
    return float(found[1])


def slope(looks: list[Look], part: str) -> float:
    """Growth over the run by the line through the looks (least squares)."""
    seconds = [look.seconds for look in looks]
    line = statistics.linear_regression(seconds, [float(getattr(look, part)) for look in looks])
    return line.slope * (seconds[-1] - seconds[0])


def table(looks: list[Look]) -> str:
    """For a terminal, with a bar for the memory."""
    most = max(look.resident_mib for look in looks)
    rows = ["seconds  resident MiB  files  threads  tasks  cached entries"]
    rows += [
        f"{look.seconds:7.0f}  {look.resident_mib:12.1f}  {look.files:5}  {look.threads:7}  {look.tasks:5}"
        f"  {look.entries:14}  {'#' * round(40 * look.resident_mib / most)}"
        for look in looks
    ]
    return "\n".join(rows)


async def soak(minutes: float, pause_seconds: float = 0.05) -> Soak:
    """Run the soak. Each scraper pauses for `pause_seconds` between an answer and its next request."""
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        lab = Lab(Path(folder))
        try:
            (lab.folder / "config.yaml").touch()
            await lab.upstream.start()
            await lab.start_kubelet()
            settings = {"config.file": str(lab.folder / "config.yaml"), "sharing": "split"}
            await lab.start_exporter("serve", settings)
            run = Soak(lab, pause_seconds)
            await run.run(minutes * 60)
            if b"Traceback" in lab.log.read_bytes():
                run.failures.append(lab.log.read_text()[-2000:])
            return run
        finally:
            await lab.close()


def growth(run: Soak) -> list[str]:
    """What grew, in words."""
    # Of a short run the first half is still warming up.
    settled = run.looks[LOOKS // 2 :]
    grown = [
        f"{part} grew by {slope(settled, part):.1f}"
        for part, allowed in (
            ("resident_mib", NOISE_MIB),
            ("files", 5.0),
            ("threads", NOISE_THREADS),
            ("tasks", NOISE_TASKS),
        )
        if slope(settled, part) > allowed
    ]
    return grown + run.failures[:5]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    run = asyncio.run(soak(given.minutes))
    print(table(run.looks))
    print(f"\n{run.steps} changes of pods or GPUs, {run.restarts} restarts and reloads, {run.answers} answers")
    print(f"resident memory over the second half: {slope(run.looks[LOOKS // 2 :], 'resident_mib'):+.1f} MiB")
    bad = growth(run)
    print("\n".join(bad) if bad else "flat")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
