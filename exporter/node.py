"""The node role, wired together: the one place that knows every part.

kubelet ──► assignments ──► owners ─┐
dcgm-exporter(s) ──► pages ─────────┴─► join ──► Snapshot ──► outputs, by way of web
"""

import asyncio
import logging
import re
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from exporter import __version__
from exporter.attribution.labels import Attribution, LabelPolicy
from exporter.attribution.owners import build_owners
from exporter.config import Config, source_names
from exporter.errors import SourceError
from exporter.exposition.join import Joiner
from exporter.exposition.legacy import with_gpu_health
from exporter.model import Assignment, Health, JoinedPage, Owners, Page, Snapshot
from exporter.outputs import textfile
from exporter.settings import LABEL_SETS, Address
from exporter.sources import kubelet
from exporter.sources.dcgm import DcgmSource
from exporter.sources.kubelet import KubeletSource
from exporter.sources.promfile import PromFileSource
from exporter.telemetry import Telemetry, log
from exporter.web import Server, build_app

KUBELET_PATIENCE_SECONDS = 0.5
READY_PROBE_PATIENCE_SECONDS = 0.9  # the kubelet gives a probe 1 s by default


class Node:
    """Reads the sources when asked, joins what they say, and keeps what can be reused until the next time."""

    def __init__(self, config: Config) -> None:
        self.telemetry = Telemetry()
        self.instance = f"pod-gpu-metrics-exporter-{secrets.token_hex(8)}"
        self._node_name = config.node_name
        self._kubelet = KubeletSource(
            socket=config.kubelet_socket,
            timeout_seconds=config.kubelet_timeout_seconds,
            max_age_seconds=config.kubelet_max_age_seconds,
            max_stale_seconds=config.kubelet_max_stale_seconds,
            resources=config.resources,
            on_health=self.telemetry.note_health,
        )
        headers = {"User-Agent": f"pod-gpu-metrics-exporter/{__version__}", "Via": f"1.1 {self.instance}"}
        self._pages: tuple[DcgmSource | PromFileSource, ...] = (
            *(
                DcgmSource(
                    name=name,
                    url=url,
                    timeout_seconds=config.dcgm_timeout_seconds,
                    max_bytes=config.dcgm_max_bytes,
                    on_health=self.telemetry.note_health,
                    headers=headers,
                )
                for name, url in zip(source_names(config.dcgm_urls), config.dcgm_urls, strict=True)
            ),
            *(
                PromFileSource(
                    path=path,
                    max_age_seconds=config.dcgm_file_max_age_seconds,
                    max_bytes=config.dcgm_max_bytes,
                    on_health=self.telemetry.note_health,
                )
                for path in config.dcgm_files
            ),
        )
        # what NVIDIA's own exporter of these label names served
        self._adds_gpu_health = config.label_names == LABEL_SETS["legacy"]
        self._policy = LabelPolicy(
            names=config.label_names,
            incoming_wins=config.incoming_wins,
            idle_labels=config.idle_labels,
            copy_shared=config.copy_shared,
        )
        self._joiner = Joiner(
            read_subject=self._policy.read_subject,
            owner_labels=self._policy.owner_labels,
            wanted=family_filter(config.families_allow, config.families_deny),
        )
        self._assignments: frozenset[Assignment] = frozenset()
        self._owners = Owners()
        self._attribution = Attribution(self._owners, self._policy)
        self._joined_from: tuple[tuple[Page, ...], Attribution] | None = None
        self._joined: JoinedPage | None = None
        self._not_ready = "no page has been asked for yet"

    async def close(self) -> None:
        """End what is in flight."""
        await asyncio.gather(self._kubelet.close(), *(source.close() for source in self._pages))

    async def collect(self, wait_seconds: float | None) -> Snapshot:
        """Ask every source at once, wait no longer than `wait_seconds` (None: their own timeouts), join."""
        began = time.monotonic()
        call = self._kubelet.begin()
        reads = tuple(source.begin() for source in self._pages)
        await asyncio.wait(reads, timeout=wait_seconds)
        if call is not None:
            # Once owners are known, a scrape does not wait long for newer ones.
            patience = KUBELET_PATIENCE_SECONDS if self._kubelet.assignments else wait_seconds
            if patience is not None:
                patience = max(0.0, min(patience, wait_seconds or patience) - (time.monotonic() - began))
            await asyncio.wait((call,), timeout=patience)
        waited = time.monotonic() - began
        health = {kubelet.NAME: _health_of(call, self._kubelet.health, waited) if call else self._kubelet.health}
        pages = []
        for source, read in zip(self._pages, reads, strict=True):
            health[source.name] = _health_of(read, source.health, waited)
            if health[source.name].up:
                pages.append(read.result())
        snapshot = Snapshot(
            node=self._node_name,
            owners=self._current_owners(),
            joined=self._join(tuple(pages)) if pages else None,
            health=health,
            assignments_age_seconds=self._kubelet.age_seconds,
        )
        self._note_ready(snapshot)
        return snapshot

    async def why_not_ready(self) -> str:
        """The reason, or "" once a page could be made with the kubelet's word, and from then on."""
        if self._not_ready:
            await self.collect(READY_PROBE_PATIENCE_SECONDS)
        return self._not_ready

    def _current_owners(self) -> Owners:
        assignments = self._kubelet.assignments
        if assignments is not self._assignments:
            self._assignments = assignments
            self._owners = build_owners(assignments)
            self._attribution = Attribution(self._owners, self._policy)
        return self._owners

    def _join(self, pages: tuple[Page, ...]) -> JoinedPage:
        # Scrapes that shared a read share the join, and its rejected lines count once.
        joined_from = (pages, self._attribution)
        known = self._joined_from
        if self._joined is None or known is None or not _same(known, joined_from):
            bodies = [with_gpu_health(page.body) if self._adds_gpu_health else page.body for page in pages]
            self._joined = self._joiner.join(bodies, self._attribution)
            self._joined_from = joined_from
            self.telemetry.count_rejected(self._joined.rejected)
        return self._joined

    def _note_ready(self, snapshot: Snapshot) -> None:
        if self._not_ready:
            down = (f"{name}: {state.message}" for name, state in snapshot.health.items() if not state.up)
            ready = snapshot.joined is not None and snapshot.health[kubelet.NAME].up
            self._not_ready = "" if ready else "not ready: " + "; ".join(down)


def _same(one: tuple[tuple[Page, ...], Attribution], other: tuple[tuple[Page, ...], Attribution]) -> bool:
    return (
        one[1] is other[1]
        and len(one[0]) == len(other[0])
        and all(a is b for a, b in zip(one[0], other[0], strict=True))
    )


def _health_of(read: asyncio.Task[Health] | asyncio.Task[Page], last: Health, waited_seconds: float) -> Health:
    """How this scrape fared with a source, by the very read it waited for: another may have come and gone since.

    Raises:
        Exception: what a read raised that is no failure of a source, but of this program.
    """
    if not read.done():
        return replace(
            last,
            up=False,
            reason="deadline",
            message=f"no answer within {waited_seconds:.1f} s; the read goes on in the background",
            duration_seconds=waited_seconds,
        )
    error = read.exception()
    if isinstance(error, SourceError):
        return replace(last, up=False, reason=error.reason, message=str(error))
    result = read.result()
    return result if isinstance(result, Health) else replace(last, up=True, reason="", message="")


def family_filter(allow: Sequence[str], deny: Sequence[str]) -> Callable[[str], bool]:
    """Whether a family goes out: its whole name matches one of `allow` (if there are any) and none of `deny`."""
    allowed, denied = [re.compile(text) for text in allow], [re.compile(text) for text in deny]

    def wanted(name: str) -> bool:
        return (not allowed or any(pattern.fullmatch(name) for pattern in allowed)) and not any(
            pattern.fullmatch(name) for pattern in denied
        )

    return wanted


async def serve(config: Config, on_listening: Callable[[tuple[Address, ...]], None] | None = None) -> None:
    """Run until SIGTERM or SIGINT; scrapes in flight then end before it returns.

    Raises:
        PortTaken: an address to listen on cannot be had.
    """
    stop = stop_event()
    node = Node(config)
    server = Server(build_app(node))
    started = time.monotonic()
    try:
        addresses = await server.start(config.listen_addresses)
        for address in addresses:
            log(logging.INFO, "listening", address=str(address), version=__version__, node=config.node_name)
        if on_listening:
            on_listening(addresses)
        await stop.wait()
        log(logging.INFO, "stopping", ran_seconds=round(time.monotonic() - started))
    finally:
        await server.close()
        await node.close()


async def write_textfile(config: Config, output: Path, *, interval_seconds: float, once: bool) -> bool:
    """Write the drop for node-exporter, once or until SIGTERM or SIGINT; whether the last one holds GPU samples.

    Raises:
        OSError: with `once`, the file could not be written. Otherwise that is logged, and tried again.
    """
    stop = stop_event()
    node = Node(config)
    try:
        while True:
            snapshot = await node.collect(None)
            try:
                textfile.write(output, textfile.render(snapshot))
            except OSError as error:
                if once:
                    raise
                log(logging.ERROR, "textfile not written, the old one stays", path=str(output), error=str(error))
            if once:
                return snapshot.joined is not None
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), interval_seconds)
            if stop.is_set():
                return snapshot.joined is not None
    finally:
        await node.close()


def stop_event() -> asyncio.Event:
    """Set by SIGTERM and SIGINT from here on."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop
