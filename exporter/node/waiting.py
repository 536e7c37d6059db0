"""The waiting of a look for each source, and the outcome of each attempt after that."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from exporter import log
from exporter.errors import SourceError, Trouble
from exporter.model.devices import Inventory
from exporter.model.pages import Page
from exporter.model.pods import PodInfo, PodName, PodsByName
from exporter.model.snapshot import Health, Snapshot
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.kubernetes.workloads import Workloads
from exporter.sources.pages.url import PageSource
from exporter.sources.source import Attempt, Source

# The open streams, each with the attempt that ends with its first answer.
Streams = list[tuple[Source, Attempt]]


class Answers(NamedTuple):
    """The reads of a look: the kubelet's, unless its last answer is fresh, and the reads of the sources `asked`.

    `inventory` is the inventory in force then, `waited` the seconds for which the look waited for all of them.
    """

    call: asyncio.Task[Health] | None
    asked: tuple[PageSource, ...]
    reads: Sequence[asyncio.Task[Page]]
    inventory: Inventory
    waited: float


def begin(source: Source, streams: Streams) -> None:
    """Keep the source open, and add it to `streams` if its first answer is still awaited."""
    first_word = source.begin()
    if first_word is not None:
        streams.append((source, first_word))


async def hear(streams: Streams, patience_seconds: float | None, wait_seconds: float | None, began: float) -> None:
    """Wait for the first answers of streams. Without `patience_seconds`, every stream's own patience counts."""
    for source, first_word in streams:
        patience = source.patience_seconds if patience_seconds is None else patience_seconds
        await asyncio.wait((first_word,), timeout=left(patience, wait_seconds, began))


def taken(
    asked: tuple[PageSource, ...], reads: Sequence[asyncio.Task[Page]], waited: float, health: dict[str, Health]
) -> tuple[tuple[Page, ...], tuple[str, ...]]:
    """The pages that came, and the names of all asked sources. Also adds the sources' healths to `health`."""
    pages = []
    names = []
    for source, read in zip(asked, reads, strict=True):
        if read.cancelled():
            continue  # the source's pod has gone meanwhile
        names.append(source.name)
        state = health[source.name] = health_of(read, source, waited)
        if state.up:
            # another scrape may have had a newer page, and counters must not go back
            page = source.page or read.result()
            pages.append(page)
            log.debug("page", source=source.name, bytes=len(page.body), up=True)
        else:
            log.debug("page", source=source.name, up=False, reason=state.reason)
    return tuple(pages), tuple(names)


def left(patience_seconds: float | None, wait_seconds: float | None, began: float) -> float | None:
    """The rest of `patience_seconds` since the scrape began, but no more than the rest of `wait_seconds`."""
    least = wait_seconds if patience_seconds is None else patience_seconds
    if least is None:
        return None
    if wait_seconds is not None:
        least = min(least, wait_seconds)
    return max(0.0, least - (time.monotonic() - began))


def health_of(
    read: asyncio.Task[Health] | asyncio.Task[Page], source: KubeletSource | PageSource, waited_seconds: float
) -> Health:
    """A source's health for this scrape, by the read that the scrape waited for: another read may have ended since.

    Raises Exception: a read failed by a fault of this program, not of the source.
    """
    last = source.health
    if not read.done():
        says = f"no answer within {waited_seconds:.1f} s; the read goes on in the background"
        late = Trouble("deadline", says, source.if_slow)
        return replace(last, up=False, trouble=late, duration_seconds=waited_seconds)
    error = read.exception()
    if isinstance(error, SourceError):
        return replace(last, up=False, trouble=error.trouble)
    result = read.result()
    if isinstance(result, Health):
        return result
    # the source's last attempt is mostly this read
    return last if last.up else replace(last, up=True, trouble=None)


def pods_to_show(snapshot: Snapshot, pods: PodsByName, of_owners: PodsByName) -> Sequence[PodInfo]:
    """The pods that rows may name, by `of_owners` or by a page."""
    holders = {match.assignment.owner.pod_key for match in snapshot.owners.matches}
    named = set[PodName]()
    for subject in snapshot.joined.subjects if snapshot.joined else ():
        named |= {owner.pod_key for owner in (subject.came_with, subject.exported) if owner}
    return [*of_owners.values(), *(pods[key] for key in named - holders if key in pods)]


def workloads_of(pods: Sequence[PodInfo], workloads: Workloads) -> Mapping[PodName, tuple[str, str]]:
    """The workloads of these pods that are known, each with its kind."""
    pairs = ((pod, workloads.of(pod)) for pod in pods)
    return {(pod.namespace, pod.name): (what.name, what.kind) for pod, what in pairs if what}
