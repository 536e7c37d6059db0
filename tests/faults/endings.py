"""Faults that no scraper sees: the end of the program under load, and a file that cannot be written."""

import asyncio
import re
import resource
import shutil
import signal
import time
from collections.abc import Awaitable, Callable

import aiohttp

from tests.faults.judge import Verdict
from tests.faults.lab import Lab, a_lab

Step = Callable[[Lab], Awaitable[None]]
SCRAPERS = 20
WHOLE = "whole answers only, then exit code 0"
OLD_FILE = "the old file stays whole, and is replaced again as soon as that can be"
TEXTFILE = {"output": "{lab.folder}/drop/gpu.prom", "interval": "100ms"}
ENDS_WITH = re.compile(r"pod_gpu_exporter_assignments_age_seconds \S+\n\Z")


async def sigterm_under_load() -> Verdict:
    """Scrapes in flight end whole; whoever comes later is refused; the program ends by itself."""
    async with a_lab({}) as lab:
        assert lab.exporter
        answers: list[tuple[float, float, int, str]] = []

        async def scrape(session: aiohttp.ClientSession) -> None:
            while True:
                began = time.monotonic()
                try:
                    async with session.get(f"{lab.base}/gpu/metrics") as response:
                        text = await response.text()
                        answers.append((began, time.monotonic() - began, response.status, text))
                except aiohttp.ClientConnectorError:
                    return
                except aiohttp.ClientError as error:
                    answers.append((began, time.monotonic() - began, 0, repr(error)))
                    if "Disconnected" not in repr(error):  # an idle connection that closes as a request is sent
                        return

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            scrapers = [asyncio.create_task(scrape(session)) for _ in range(SCRAPERS)]
            await asyncio.sleep(1.0)
            lab.hurt_at = time.monotonic()
            lab.exporter.send_signal(signal.SIGTERM)
            code = await asyncio.wait_for(lab.exporter.wait(), 15)
            took = time.monotonic() - lab.hurt_at
            await asyncio.wait(scrapers, timeout=30)
        cut = [text for _, _, status, text in answers if status != 200 and "Disconnected" not in text]
        halves = [text for _, _, status, text in answers if status == 200 and not ENDS_WITH.search(text)]
        broken = []
        if code != 0:
            broken.append(f"exit code {code}: {lab.log.read_text()[-1000:]}")
        if cut or halves:
            broken.append(f"{len(cut) + len(halves)} answers were cut off: {(cut + halves)[0][-200:]}")
        if b"Traceback" in lab.log.read_bytes():
            broken.append(lab.log.read_text()[-1000:])
        return Verdict(
            name="SIGTERM under load",
            promise=WHOLE,
            scrapes=len(answers),
            failed=len(cut),
            slowest_seconds=max(spent for _, spent, _, _ in answers),
            recovery_seconds=took,
            broken="; ".join(broken),
        )


async def disk_full() -> Verdict:
    """No file of the program may grow past 1000 bytes: what a full disk does to a write."""

    async def hurt(lab: Lab) -> None:
        assert lab.exporter
        _, hard = resource.prlimit(lab.exporter.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lab.exporter.pid, resource.RLIMIT_FSIZE, (1000, hard))

    async def heal(lab: Lab) -> None:
        assert lab.exporter
        _, hard = resource.prlimit(lab.exporter.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(lab.exporter.pid, resource.RLIMIT_FSIZE, (hard, hard))

    return await _textfile("textfile: no space left", hurt, heal)


async def folder_gone() -> Verdict:
    """The folder is renamed away and comes back."""

    async def hurt(lab: Lab) -> None:
        (lab.folder / "drop").rename(lab.folder / "away")

    async def heal(lab: Lab) -> None:
        (lab.folder / "away").rename(lab.folder / "drop")

    return await _textfile("textfile: folder gone", hurt, heal)


async def _textfile(name: str, hurt: Step, heal: Step) -> Verdict:
    async with a_lab(TEXTFILE, command="textfile", folders=("drop",)) as lab:
        drop = lab.folder / "drop" / "gpu.prom"
        away = lab.folder / "away" / "gpu.prom"
        await lab.until(lambda: drop.exists() and drop.stat().st_size > 0)
        began = time.monotonic()
        await hurt(lab)
        looks, halves = 0, []
        before = (drop if drop.exists() else away).stat().st_mtime_ns
        while time.monotonic() < began + 3:
            file = drop if drop.exists() else away
            looks += 1
            if not ENDS_WITH.search(file.read_text()):
                halves.append(file.read_text())
            await asyncio.sleep(0.02)
        written = (drop if drop.exists() else away).stat().st_mtime_ns
        # what was under way when it began may have come through
        broken = [] if written - before < 0.5e9 else ["the file was written although it could not be"]
        if halves:
            broken.append(f"{len(halves)} looks at a file that was not whole")
        left = {*drop.parent.glob("*")} - {drop}
        await asyncio.sleep(1.0)  # one that is being written goes again
        left &= {*drop.parent.glob("*")}
        if left:
            broken.append(f"files left over: {left}")
        healed = time.monotonic()
        await heal(lab)
        await lab.until(lambda: drop.stat().st_mtime_ns > written)
        assert lab.exporter
        if "textfile not written" not in lab.log.read_text():
            broken.append("nothing in the log")
        lab.exporter.send_signal(signal.SIGTERM)
        if await asyncio.wait_for(lab.exporter.wait(), 10):
            broken.append("the exit code is not 0")
        shutil.rmtree(lab.folder / "drop")
        return Verdict(
            name=name,
            promise=OLD_FILE,
            scrapes=looks,
            failed=len(halves),
            recovery_seconds=time.monotonic() - healed,
            broken="; ".join(broken),
        )


ENDINGS = (sigterm_under_load, disk_full, folder_gone)
