"""Load: crowds, slow readers, half-open connections, floods of requests. What they cost the others."""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager

import aiohttp

from tests.faults.judge import Verdict
from tests.faults.lab import DEADLINE_SECONDS, NOISE_SECONDS, Lab, Scrape, a_lab
from tests.support.components import real

CROWD = 50
LASTS_SECONDS = 2
SHARED = "one read of a source at a time, 2 kubelet calls a second, whole pages, memory flat"
UNDISTURBED = "other scrapes go on as before"
REQUEST = b"GET /gpu/metrics HTTP/1.1\r\nHost: a\r\n\r\n"


async def crowd() -> Verdict:
    """50 scrapers without a pause between their scrapes."""
    async with a_lab({}) as lab:
        await asyncio.sleep(1)
        resident = lab.rss_mib()
        calls, reads = lab.kubelet_calls(), lab.upstream.reads
        texts: list[tuple[int, str]] = []
        slowest = 0.0
        began_at = time.monotonic()
        ends_at = began_at + LASTS_SECONDS

        async def scrape(session: aiohttp.ClientSession) -> None:
            nonlocal slowest
            while time.monotonic() < ends_at:
                began = time.monotonic()
                async with session.get(f"{lab.base}/gpu/metrics") as response:
                    text = await response.text()
                    texts.append((response.status, text))
                slowest = max(slowest, time.monotonic() - began)

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            await asyncio.gather(*(scrape(session) for _ in range(CROWD)))
        assert lab.expected
        want = lab.expected.text.count("\n")
        wrong = [text for status, text in texts if status != 200 or text.count("\n") != want]
        lasted_seconds = time.monotonic() - began_at
        called = (lab.kubelet_calls() - calls) / lasted_seconds
        broken = []
        if wrong:
            broken.append(f"{len(wrong)} answers are not whole: {wrong[0][-200:]}")
        if lab.kubelet_calls() - calls > 2 * lasted_seconds + 1:
            broken.append(f"the kubelet was called {called:.1f} times a second")
        if lab.upstream.most_reading > 1:
            broken.append(f"{lab.upstream.most_reading} reads of dcgm-exporter at a time")
        if lab.rss_mib() > resident + 20:
            broken.append(f"memory grew by {lab.rss_mib() - resident:.0f} MiB")
        return Verdict(
            name=f"{CROWD} scrapers, as fast as they can ({len(texts) / LASTS_SECONDS:.0f}/s, "
            f"{called:.1f} kubelet calls/s, {(lab.upstream.reads - reads) / LASTS_SECONDS:.0f} reads/s)",
            promise=SHARED,
            scrapes=len(texts),
            failed=len(wrong),
            slowest_seconds=slowest,
            recovery_seconds=0.0,
            most_mib=lab.rss_mib(),
            broken="; ".join(broken),
        )


async def wrk() -> Verdict:
    """What `wrk` from Debian's package offers: far more than a thousand scrapes a second, if they are answered."""
    async with a_lab({}) as lab:
        await asyncio.sleep(1)
        lab.hurt_at = time.monotonic()
        command = [
            str(real("wrk")),
            "-t2",
            f"-c{CROWD}",
            f"-d{LASTS_SECONDS}s",
            "-H",
            "Accept-Encoding: gzip",
            f"{lab.base}/gpu/metrics",
        ]
        ran = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said = (await ran.communicate())[0].decode()
        during = [scrape for scrape in lab.scrapes if scrape.began >= lab.hurt_at]
        requests = int(re.findall(r"(\d+) requests in", said)[0])
        broken = [line.strip() for line in said.splitlines() if "Socket errors" in line or "Non-2xx" in line]
        failed = _lacking(during, lab)
        if failed:
            broken.append(f"{len(failed)} scrapes beside it failed: {failed[0].text[-200:]}")
        return Verdict(
            name=f"wrk, {CROWD} connections, gzip ({requests / LASTS_SECONDS:.0f}/s)",
            promise=SHARED,
            scrapes=requests + len(during),
            failed=len(failed),
            slowest_seconds=max(scrape.took for scrape in during),
            recovery_seconds=0.0,
            most_mib=lab.rss_mib(),
            broken="; ".join(broken),
        )


@asynccontextmanager
async def connected(lab: Lab, number: int, receive_bytes: int | None = None) -> AsyncIterator[list[socket.socket]]:
    """Connections of plain sockets, all open."""
    loop = asyncio.get_running_loop()
    host, _, port = lab.base.removeprefix("http://").rpartition(":")
    opened: list[socket.socket] = []
    try:
        for _ in range(number):
            one = socket.socket()
            one.setblocking(False)
            if receive_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            await loop.sock_connect(one, (host, int(port)))
            opened.append(one)
        yield opened
    finally:
        for one in opened:
            one.close()


def _lacking(scrapes: Iterable[Scrape], lab: Lab) -> list[Scrape]:
    """The scrapes that lack something. That a source is late on a busy machine is no fault: the scrape has it all."""
    good = lab.expected
    assert good
    return [
        each for each in scrapes if each.status != 200 or not (good.owned <= each.owned and good.series <= each.series)
    ]


async def _undisturbed(name: str, lab: Lab, hurt: Coroutine[object, object, None]) -> Verdict:
    """What the lab's own scraper, and new connections of others, see meanwhile."""
    await asyncio.sleep(1)
    lab.hurt_at = time.monotonic()
    others: list[Scrape] = []
    worker = asyncio.create_task(hurt)
    while not worker.done():
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=4)) as session:
            others.append(await lab.scrape(session))
        await asyncio.sleep(0.2)
    await worker
    during = [*others, *(scrape for scrape in lab.scrapes if scrape.began >= lab.hurt_at)]
    failed = _lacking(during, lab)
    slowest = max(scrape.took for scrape in during)
    broken = []
    if failed:
        broken.append(f"{len(failed)} scrapes failed: {failed[0].text[-200:]}")
    if slowest > DEADLINE_SECONDS + NOISE_SECONDS:
        broken.append(f"a scrape took {slowest:.1f} s")
    if lab.rss_mib() > 160:
        broken.append(f"{lab.rss_mib():.0f} MiB resident")
    if b"Traceback" in lab.log.read_bytes():
        broken.append(lab.log.read_text()[-1000:])
    return Verdict(
        name=name,
        promise=UNDISTURBED,
        scrapes=len(during),
        failed=len(failed),
        slowest_seconds=slowest,
        recovery_seconds=0.0,
        most_mib=lab.rss_mib(),
        broken="; ".join(broken),
    )


async def slow_readers() -> Verdict:
    """200 ask for pages, again and again, and read nothing of them."""
    async with a_lab({}) as lab:

        async def hurt() -> None:
            loop = asyncio.get_running_loop()
            async with connected(lab, 200, receive_bytes=1024) as sockets:
                for one in sockets:
                    await loop.sock_sendall(one, REQUEST * 40)
                    await asyncio.sleep(0.01)  # slow, but no flood
                await asyncio.sleep(LASTS_SECONDS)

        return await _undisturbed("200 slow readers", lab, hurt())


async def half_open() -> Verdict:
    """900 connect, in waves, and say half a request or nothing."""
    async with a_lab({}) as lab:

        async def hurt() -> None:
            loop = asyncio.get_running_loop()
            async with connected(lab, 450) as first, connected(lab, 450) as second:
                for number, one in enumerate((*first, *second)):
                    if number % 2:
                        try:
                            await loop.sock_sendall(one, b"GET /gpu/metrics HTTP/1.1\r\nX-Never: ")
                        except OSError:
                            continue  # made room for others
                await asyncio.sleep(LASTS_SECONDS)

        return await _undisturbed("900 half-open connections", lab, hurt())


async def pipeline_flood() -> Verdict:
    """20 connections send requests without end and without reading an answer."""
    async with a_lab({}) as lab:

        async def flood(one: socket.socket) -> None:
            loop = asyncio.get_running_loop()
            try:
                async with asyncio.timeout(LASTS_SECONDS):
                    while True:
                        await loop.sock_sendall(one, REQUEST * 100)
            except (TimeoutError, OSError):
                pass

        async def hurt() -> None:
            async with connected(lab, 20, receive_bytes=1024) as sockets:
                await asyncio.gather(*(flood(one) for one in sockets))

        return await _undisturbed("requests in a pipe, and no reader", lab, hurt())


async def odd_requests() -> Verdict:
    """What no scraper sends: each gets an error or is cut off, at once."""
    async with a_lab({}) as lab:
        requests = [
            b"GET /" + b"a" * 1_000_000 + b" HTTP/1.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: " + b"a" * 1_000_000 + b"\r\n\r\n",
            b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: b\r\n" % number for number in range(100_000)) + b"\r\n",
            b"POST /gpu/metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n" + b"a" * 1_000_000,
            b"GET /gpu/metrics HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET /gpu/../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET http://169.254.169.254/latest HTTP/1.1\r\nHost: a\r\n\r\n",
            b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nHost: a\r\n\r\n",
            b"GET /gpu/metrics?url=http://169.254.169.254/ HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 500,
            b"\0" * 100_000,
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ]
        answers: list[bytes] = []

        async def hurt() -> None:
            loop = asyncio.get_running_loop()
            for request in requests:
                async with connected(lab, 1) as (one,):
                    try:
                        async with asyncio.timeout(3):
                            await loop.sock_sendall(one, request)
                            answers.append(await loop.sock_recv(one, 200))
                    except OSError:
                        answers.append(b"")

        found = await _undisturbed("odd requests", lab, hurt())
        statuses = [answer[9:12] for answer in answers]
        allowed = {b"", b"400", b"403", b"404", b"405"}
        # a query and a Host of one's own change nothing: what is asked is what is configured
        strange = [status for number, status in enumerate(statuses) if status not in allowed and number != 9]
        if strange or statuses[9] != b"200" or b"root:" in b"".join(answers):
            return Verdict(name=found.name, promise=UNDISTURBED, broken=f"answers: {statuses}")
        return found


LOADS = (crowd, wrk, slow_readers, half_open, pipeline_flood, odd_requests)
