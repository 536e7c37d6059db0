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

from exporter import __version__
from exporter.attribution.labels import Attribution, LabelPolicy
from exporter.attribution.owners import build_owners
from exporter.config import Address, Config, source_names
from exporter.errors import SourceError
from exporter.exposition.join import Joiner
from exporter.model import Assignment, Health, JoinedPage, Owners, Page, Snapshot
from exporter.sources import kubelet
from exporter.sources.dcgm import DcgmSource
from exporter.sources.kubelet import KubeletSource
from exporter.telemetry import Telemetry, log
from exporter.web import Server, build_app

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
        self._dcgm = tuple(
            DcgmSource(
                name=name,
                url=url,
                timeout_seconds=config.dcgm_timeout_seconds,
                max_bytes=config.dcgm_max_bytes,
                on_health=self.telemetry.note_health,
                headers=headers,
            )
            for name, url in zip(source_names(config.dcgm_urls), config.dcgm_urls, strict=True)
        )
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
        await asyncio.gather(self._kubelet.close(), *(source.close() for source in self._dcgm))

    async def collect(self, wait_seconds: float | None) -> Snapshot:
        """Ask every source at once, wait no longer than `wait_seconds` (None: their own timeouts), join."""
        health: dict[str, Health] = {}
        kubelet_answer, *answers = await asyncio.gather(
            self._kubelet.read(wait_seconds),
            *(source.read(wait_seconds) for source in self._dcgm),
            return_exceptions=True,
        )
        health[kubelet.NAME] = _health_of(kubelet_answer, self._kubelet.health, wait_seconds)
        pages = []
        for source, answer in zip(self._dcgm, answers, strict=True):
            health[source.name] = _health_of(answer, source.health, wait_seconds)
            if isinstance(answer, Page):
                pages.append(answer)
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
            self._joined = self._joiner.join([page.body for page in pages], self._attribution)
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


def _health_of(answer: object, last: Health, wait_seconds: float | None) -> Health:
    """How this scrape fared with a source: as the last attempt did, but for a scrape that could not wait for it.

    Raises:
        BaseException: what a source raised that is no failure of a source, but of this program.
    """
    if not isinstance(answer, BaseException):
        return last
    if not isinstance(answer, SourceError):
        raise answer
    if last.up is False:
        return last
    return Health(
        up=False,
        reason=answer.reason,
        message=str(answer),
        duration_seconds=wait_seconds,
        last_success_at_seconds=last.last_success_at_seconds,
    )


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
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
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
