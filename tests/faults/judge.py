"""Runs faults and judges what a scraper saw against the promise."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from tests.faults.catalogue import OTHERS_SERVED, REFUSED, SERVED, SERVED_WITHOUT_OWNERS, Fault
from tests.faults.lab import DEADLINE_SECONDS, NOISE_SECONDS, Lab, Scrape, a_lab

# Each is three processes, which wait most of the time; these machines have two cores.
AT_ONCE = 8


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row of the table. `broken` says what was not held, or ""."""

    name: str
    promise: str
    scrapes: int = 0
    failed: int = 0
    samples_lost: int = 0
    owners_lost: int = 0
    slowest_seconds: float = 0.0
    recovery_seconds: float | None = None
    most_mib: float = 0.0
    broken: str = ""


async def judge(fault: Fault) -> Verdict:
    """Run one fault."""
    try:
        async with asyncio.timeout(150), a_lab(fault.settings, wrapper=fault.wrapper, pods=fault.pods) as lab:
            await fault.run(lab)
            recovered = await recovery(lab, fault)
            return verdict(fault, lab, recovered)
    except (AssertionError, TimeoutError, OSError) as error:
        return Verdict(name=fault.name, promise=fault.promise, broken=f"{type(error).__name__}: {error}")


async def recovery(lab: Lab, fault: Fault) -> Scrape | None:
    """The first scrape since the fault was healed that is as good as any."""
    give_up_at = time.monotonic() + fault.recovers_within + 10
    while time.monotonic() < give_up_at:
        for scrape in lab.scrapes:
            if scrape.began >= lab.healed_at and is_good(scrape, lab):
                return scrape
        await asyncio.sleep(0.02)
    return None


def is_good(scrape: Scrape, lab: Lab) -> bool:
    assert lab.expected
    return scrape.all_up and scrape.owned == lab.expected.owned and not lost(scrape, lab)


def lost(scrape: Scrape, lab: Lab) -> int:
    """Samples that a good scrape has and this one has not, whoever owns them."""
    assert lab.expected
    return len(lab.expected.series - scrape.series)


def verdict(fault: Fault, lab: Lab, recovered: Scrape | None) -> Verdict:  # noqa: C901 - a list of promises
    assert lab.expected
    during = [scrape for scrape in lab.scrapes if lab.hurt_at <= scrape.began < lab.healed_at]
    answered = [scrape for scrape in during if scrape.status == 200]
    failed = len(during) - len(answered)
    samples_lost = max((lost(scrape, lab) for scrape in answered), default=0)
    owners_lost = sum(bool(lab.expected.owned - scrape.owned) for scrape in answered)
    slowest = max((scrape.took for scrape in during), default=0.0)
    took = recovered.began + recovered.took - lab.healed_at if recovered else None
    broken = []
    if not during and not fault.at_once:
        broken.append("nobody scraped")
    if fault.promise in (SERVED, SERVED_WITHOUT_OWNERS, OTHERS_SERVED) and failed:
        broken.append(f"{failed} scrapes failed: {next(s.text[:200] for s in during if s.status != 200)}")
    if fault.promise in (SERVED, SERVED_WITHOUT_OWNERS, REFUSED) and samples_lost:
        broken.append(f"{samples_lost} samples lost")
    if fault.promise == SERVED and owners_lost:
        broken.append(f"owners lost in {owners_lost} scrapes")
    if fault.promise == OTHERS_SERVED and any("OTHER_FAMILY{" not in scrape.text for scrape in answered):
        broken.append("the other source's samples are missing")
    if fault.promise == REFUSED:
        # one that ends after it was healed may well be good
        settled = lab.settled()
        if any(scrape.status != 503 or scrape.text.count("\n") != 1 for scrape in settled):
            broken.append("an answer is no 503 with one line")
        if not settled or any(fault.why not in scrape.text for scrape in settled):
            broken.append(f"an answer does not say {fault.why!r}: {[s.text[:200] for s in settled][:1]}")
    if slowest > DEADLINE_SECONDS + NOISE_SECONDS:
        broken.append(f"a scrape took {slowest:.1f} s")
    if took is None or took > fault.recovers_within:
        broken.append(f"not as before within {fault.recovers_within:g} s")
    if fault.most_mib and lab.rss_mib() > fault.most_mib:
        broken.append(f"{lab.rss_mib():.0f} MiB resident")
    if b"Traceback" in lab.log.read_bytes():
        broken.append(f"a trace in the log: {lab.log.read_text()[-2000:]}")
    return Verdict(
        name=fault.name,
        promise=fault.promise,
        scrapes=len(during),
        failed=failed,
        samples_lost=samples_lost,
        owners_lost=owners_lost,
        slowest_seconds=slowest,
        recovery_seconds=took,
        most_mib=lab.rss_mib(),
        broken="; ".join(broken),
    )


async def judge_all(faults: Iterable[Fault]) -> list[Verdict]:
    """All of them, several at a time."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one(fault: Fault) -> Verdict:
        async with places:
            return await judge(fault)

    return await asyncio.gather(*(one(fault) for fault in faults))


async def run_alone(case: Callable[[], Awaitable[Verdict]]) -> Verdict:
    """A case that needs the machine for itself."""
    try:
        async with asyncio.timeout(120):
            return await case()
    except (AssertionError, TimeoutError, OSError) as error:
        return Verdict(name=case.__name__, promise="", broken=f"{type(error).__name__}: {error}")


def table(verdicts: Iterable[Verdict]) -> str:
    """For a terminal."""
    rows = [
        ("fault", "scrapes", "failed", "samples lost", "owners lost", "slowest s", "recovery s", "MiB", "promise", "")
    ]
    rows += [
        (
            found.name,
            str(found.scrapes),
            str(found.failed),
            str(found.samples_lost),
            str(found.owners_lost),
            f"{found.slowest_seconds:.2f}",
            "-" if found.recovery_seconds is None else f"{found.recovery_seconds:.2f}",
            f"{found.most_mib:.0f}",
            found.promise,
            "BROKEN" if found.broken else "held",
        )
        for found in verdicts
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join((*lines, *(f"\n{found.name}: {found.broken}" for found in verdicts if found.broken)))
