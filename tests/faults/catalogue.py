"""The faults: what is hurt, and what a scraper is promised meanwhile."""

import asyncio
import gzip
import os
import re
import signal
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tests.faults.kubelet import (
    garbage_socket,
    kubelet_restart,
    kubelet_says,
    kubelet_stopped,
    kubelet_without_api_server,
    no_permission,
    pod_gone_during_a_restart,
    pod_gone_while_down,
    pods_gone,
)
from tests.faults.lab import SCRAPES, Lab, Run
from tests.faults.upstream import Respond, answer, drip, flood, hang, hang_after_headers, raw

SERVED = "every scrape answered, every sample and every owner there"
SERVED_WITHOUT_OWNERS = "every scrape answered, every sample there; owners until they are too old"
OTHERS_SERVED = "every scrape answered, the other source's samples all there"
REFUSED = "503 with the reason, never a part of a page"
# A read that hangs is given up after --dcgm.timeout (5 s); until then scrapes wait with it, as long as they may.
UPSTREAM_TIMEOUT_SECONDS = 6.0


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault. `why` is in the answers meanwhile; `at_once` is a fault that does not last."""

    name: str
    run: Run
    promise: str = SERVED
    why: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    wrapper: tuple[str, ...] = ()
    pods: int | None = None
    at_once: bool = False
    recovers_within: float = 3.0
    most_mib: float | None = None


async def kubelet_and_dcgm_hang(lab: Lab) -> None:
    lab.upstream.respond = hang
    await kubelet_stopped(lab)
    lab.upstream.respond = None
    lab.healed()


def dcgm_answers(respond: Callable[[Lab], Respond], seconds: float = 0.0) -> Run:
    async def run(lab: Lab) -> None:
        lab.upstream.respond = respond(lab)
        await lab.hurt(seconds, asked=lab.upstream.requests)
        lab.upstream.respond = None
        lab.healed()

    return run


async def dcgm_down(lab: Lab) -> None:
    await lab.upstream.stop()
    await lab.hurt()
    await lab.upstream.start()
    lab.healed()


async def dcgm_restarts(lab: Lab) -> None:
    """As dcgm-exporter does it: gone, then an empty 200 while it collects for the first time, then a page."""
    await lab.upstream.stop()
    await lab.hurt()
    lab.upstream.respond = answer(b"")
    await lab.upstream.start()
    before = lab.upstream.requests()
    await lab.until(lambda: lab.upstream.requests() >= before + 2)
    lab.upstream.respond = None
    lab.healed()


def bad_lines(text: bytes, *, first: bool = False) -> Run:
    """A page with something bad in it; what is good in it is served."""

    async def run(lab: Lab) -> None:
        page = lab.page
        lab.upstream.page = lambda: (text + page().encode()) if first else (page().encode() + text)
        await lab.hurt(asked=lab.upstream.requests)
        lab.upstream.page = lambda: page().encode()
        lab.healed()

    return run


def clock(seconds: float) -> Run:
    """The wall clock steps; the file that is the source is written on, as its writer would with that clock."""

    async def run(lab: Lab) -> None:
        async def write_on() -> None:
            path = lab.folder / "dcgm.prom"
            while True:
                beside = path.with_suffix(".swp")
                beside.write_text(lab.page())
                now = beside.stat().st_mtime + float((lab.folder / "ahead").read_text() or 0)
                os.utime(beside, (now, now))
                beside.replace(path)
                await asyncio.sleep(0.5)

        writer = asyncio.create_task(write_on())
        try:
            await lab.step(seconds)
            await lab.hurt(1.0)  # the file is written after the step, too
            lab.healed()
        finally:
            writer.cancel()

    return run


async def reload_under_load(lab: Lab) -> None:
    """SIGHUP, a changed file, a bad file and a ConfigMap's way of changing files, one after the other."""
    assert lab.exporter
    config = lab.folder / "config.yaml"
    lab.begins()
    for number in range(6):
        if number % 3 == 0:
            config.write_text(f"dcgm.timeout: {4 + number}s\n")
        elif number % 3 == 1:
            config.write_text("no.such.key: 1\n")
        else:
            version = lab.folder / f"..{number}"
            version.mkdir()
            (version / "config.yaml").write_text(f"kubelet.timeout: {4 + number}s\n")
            (lab.folder / "..link").symlink_to(version / "config.yaml")
            (lab.folder / "..link").replace(config)
        if number % 2:
            before = reloads(lab)
            lab.exporter.send_signal(signal.SIGHUP)
            await lab.until(lambda before=before: reloads(lab) > before)  # type: ignore[misc]  # mypy cannot infer a lambda with a default
        await asyncio.sleep(0.5)
        if config.is_symlink():
            config.unlink()
    config.write_text("")
    lab.exporter.send_signal(signal.SIGHUP)
    lab.healed()


def reloads(lab: Lab) -> int:
    """How many configurations were taken over or refused."""
    return len(re.findall(r"configuration re(?:loaded|fused)", lab.log.read_text()))


async def many_reloads(lab: Lab) -> None:
    assert lab.exporter
    lab.begins()
    for _ in range(20):
        lab.exporter.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.1)
    await lab.until(lambda: reloads(lab) > 1 and len(lab.settled()) >= SCRAPES)
    lab.healed()


WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-m", "exporter")
STEPPING_CLOCK = (sys.executable, "-m", "tests.support.stepping_clock", "wall", "{lab.folder}/ahead")
TIME_PASSES = (sys.executable, "-m", "tests.support.stepping_clock", "monotonic", "{lab.folder}/ahead")
# the file is written once before the program starts, which a busy machine may take long for
FILE_ALONE = {"dcgm.url": "", "dcgm.file": "{lab.folder}/dcgm.prom", "dcgm.file-max-age": "60s"}
PAGE_ONE = b'DCGM_FI_DEV_X{UUID="GPU-1"} 1\n'


def _owner_page(lab: Lab) -> bytes:
    return lab.page().encode()


FAULTS = (
    # the kubelet
    Fault(name="kubelet SIGKILL, 1 s down", run=kubelet_restart(signal.SIGKILL, 1)),
    Fault(name="kubelet SIGTERM, 1 s down", run=kubelet_restart(signal.SIGTERM, 1)),
    # 18 s, since gRPC by itself would then wait 6 s more to connect; the exporter's clocks go a minute ahead
    Fault(
        name="kubelet SIGKILL, 60 s down",
        run=kubelet_restart(signal.SIGKILL, 18, passes=60),
        wrapper=TIME_PASSES,
    ),
    Fault(
        name="kubelet SIGTERM, 60 s down",
        run=kubelet_restart(signal.SIGTERM, 1, passes=60),
        wrapper=TIME_PASSES,
    ),
    Fault(
        name="kubelet's socket removed, its inode number reused", run=kubelet_restart(signal.SIGTERM, 1, unlink=True)
    ),
    Fault(
        name="kubelet lists nothing for 5 s, then a part", run=kubelet_restart(signal.SIGKILL, 1, empty=5, partial=3)
    ),
    Fault(name="kubelet restarts, its API server 60 s away", run=kubelet_without_api_server, wrapper=TIME_PASSES),
    Fault(name="kubelet stopped (SIGSTOP)", run=kubelet_stopped),
    Fault(name="kubelet's rate limit", run=kubelet_says(failure=["RESOURCE_EXHAUSTED", "rejected by rate limit"])),
    Fault(name="kubelet's List of 65 MiB, past the receive limit", run=kubelet_says(raw_megabytes=65)),
    Fault(name="kubelet's List is garbage", run=kubelet_says(raw_megabytes=1)),
    Fault(name="kubelet fails inside", run=kubelet_says(failure=["INTERNAL", "checkpoint"])),
    Fault(name="kubelet drops v1 from one call to the next", run=kubelet_says(gone=["v1"])),
    Fault(name="kubelet serves neither v1 nor v1alpha1", run=kubelet_says(gone=["v1", "v1alpha1"])),
    Fault(name="kubelet's folder may not be entered", run=no_permission, wrapper=WITHOUT_CAPABILITIES),
    Fault(name="another program on the kubelet's socket", run=garbage_socket),
    Fault(name="500 pods beside, and a restart", run=kubelet_restart(signal.SIGKILL, 1), pods=500),
    Fault(
        name="kubelet down for longer than owners are kept",
        run=kubelet_restart(signal.SIGKILL, 5),
        settings={"kubelet.max-stale": "2s"},
        promise=SERVED_WITHOUT_OWNERS,
    ),
    Fault(name="a pod ends", run=pods_gone, at_once=True),
    Fault(name="a pod ends just after a kubelet restart", run=pod_gone_during_a_restart, at_once=True),
    Fault(name="a pod ends while the kubelet is down", run=pod_gone_while_down, recovers_within=14.0),
    # dcgm-exporter
    Fault(name="dcgm-exporter down", run=dcgm_down, promise=REFUSED, why="is dcgm-exporter running"),
    Fault(name="dcgm-exporter restarts", run=dcgm_restarts, promise=REFUSED),
    Fault(
        name="dcgm-exporter hangs",
        run=dcgm_answers(lambda _: hang, 6),
        promise=REFUSED,
        why="answer within",
        recovers_within=UPSTREAM_TIMEOUT_SECONDS,
    ),
    Fault(
        name="dcgm-exporter hangs after its headers",
        run=dcgm_answers(lambda _: hang_after_headers, 6),
        promise=REFUSED,
        why="answer within",
        recovers_within=UPSTREAM_TIMEOUT_SECONDS,
    ),
    Fault(
        name="dcgm-exporter sends a byte a second",
        run=dcgm_answers(lambda lab: drip(_owner_page(lab)), 6),
        promise=REFUSED,
        why="answer within",
        recovers_within=UPSTREAM_TIMEOUT_SECONDS,
    ),
    Fault(
        name="dcgm-exporter's page cut off (Content-Length)",
        run=dcgm_answers(lambda lab: answer(_owner_page(lab)[:5000], length=9000)),
        promise=REFUSED,
        why="cut off",
    ),
    Fault(
        name="dcgm-exporter's page cut off (broken chunk)",
        run=dcgm_answers(lambda _: raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n" + PAGE_ONE)),
        promise=REFUSED,
    ),
    Fault(
        name="dcgm-exporter's chunk of no size",
        run=dcgm_answers(lambda _: raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n" + PAGE_ONE)),
        promise=REFUSED,
    ),
    Fault(name="an empty 200", run=dcgm_answers(lambda _: answer(b"")), promise=REFUSED, why="not one valid sample"),
    Fault(
        name="status 500",
        run=dcgm_answers(lambda _: answer(b"broken", status="500 Internal Server Error")),
        promise=REFUSED,
        why="HTTP status 500",
    ),
    Fault(
        name="a redirect elsewhere",
        run=dcgm_answers(lambda _: answer(b"", "Location: http://127.0.0.1:1/", status="302 Found")),
        promise=REFUSED,
        why="HTTP status 302",
    ),
    Fault(
        name="gzip that was not asked for",
        run=dcgm_answers(lambda lab: answer(gzip.compress(_owner_page(lab)), "Content-Encoding: gzip")),
    ),
    Fault(
        name="a gzip bomb of 1 GiB",
        run=dcgm_answers(lambda _: answer(bomb(), "Content-Encoding: gzip")),
        promise=REFUSED,
        why="max-bytes",
        most_mib=200,
    ),
    Fault(
        name="200 MB of text",
        run=dcgm_answers(lambda _: flood(200, PAGE_ONE)),
        promise=REFUSED,
        most_mib=200,
    ),
    Fault(
        name="60,000 series",
        run=dcgm_answers(lambda _: answer(b"".join(b'a{UUID="GPU-%d"} 1\n' % number for number in range(60_000)))),
        promise=REFUSED,
        why="more than 50000 lines",
        most_mib=200,
    ),
    Fault(
        name="HTML instead of metrics",
        run=dcgm_answers(lambda _: answer(b"<html><body>It works!</body></html>\n" * 50)),
        promise=REFUSED,
        why="not one valid sample",
    ),
    Fault(
        name="no HTTP at all",
        run=dcgm_answers(lambda _: raw(b"SSH-2.0-OpenSSH_9.6\r\n")),
        promise=REFUSED,
    ),
    Fault(name="a line of 1 MB", run=bad_lines(b'a{b="' + b"\\" * 1_000_000 + b'"} 1\n')),
    Fault(name="an endless line", run=dcgm_answers(lambda _: flood(40, b"a" * 1024)), promise=REFUSED, most_mib=200),
    Fault(name="NUL bytes", run=bad_lines(b'\0\0\0\na{b="\0"} 1\n\0 1\n')),
    Fault(name="invalid UTF-8", run=bad_lines(b'a{b="\xff\xfe"} 1\n\xc0\xaf 1\n# HELP a \xff\n', first=True)),
    Fault(name="the same series twice", run=bad_lines(b'same{UUID="GPU-1"} 1\nsame{UUID="GPU-1"} 2\n')),
    Fault(
        name="two sources, one of them down",
        run=dcgm_down,
        settings={"dcgm.url": "{lab.upstream.url},{lab.second.url}"},
        promise=OTHERS_SERVED,
    ),
    Fault(
        name="kubelet stopped and dcgm-exporter hanging",
        run=kubelet_and_dcgm_hang,
        promise=REFUSED,
        why="answer within",
        recovers_within=UPSTREAM_TIMEOUT_SECONDS,
    ),
    # the machine, and those who run it
    Fault(name="the clock steps 1 h forward", run=clock(3600), settings=FILE_ALONE, wrapper=STEPPING_CLOCK),
    Fault(name="the clock steps 1 h back", run=clock(-3600), settings=FILE_ALONE, wrapper=STEPPING_CLOCK),
    Fault(
        name="reloads under load: SIGHUP, files, symbolic links, bad ones",
        run=reload_under_load,
        settings={"config.file": "{lab.folder}/config.yaml"},
    ),
    Fault(name="SIGHUP ten times a second", run=many_reloads),
)


def bomb() -> bytes:
    """1 GiB of zeros in about 1 MiB: one block again and again."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    head = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    block = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    return head + block * 1024
