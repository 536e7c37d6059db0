"""How long a look waits for what it began, and what it makes of each attempt when it waits no longer."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace

from exporter.errors import SourceError, Trouble
from exporter.log import debug
from exporter.model.pages import Page
from exporter.model.snapshot import Health
from exporter.sources.kubelet.assignments import KubeletSource
from exporter.sources.pages.source import PageSource
from exporter.sources.source import Attempt, Source

# those that are kept open, each with the attempt that ends with its first word
Streams = list[tuple[Source, Attempt]]


def begin(source: Source, streams: Streams) -> None:
    """Keep it open, and add it to `streams` if its first word is still awaited."""
    first_word = source.begin()
    if first_word is not None:
        streams.append((source, first_word))


async def hear(streams: Streams, patience_seconds: float | None, wait_seconds: float | None, began: float) -> None:
    """Wait for the first words of streams, with each one's own patience where none is given."""
    for source, first_word in streams:
        patience = source.patience_seconds if patience_seconds is None else patience_seconds
        await asyncio.wait((first_word,), timeout=left(patience, wait_seconds, began))


def taken(
    asked: tuple[PageSource, ...], reads: Sequence[asyncio.Task[Page]], waited: float, health: dict[str, Health]
) -> tuple[tuple[Page, ...], tuple[str, ...]]:
    """The pages that came, and the names of all that were asked; their healths go into `health`."""
    pages, names = [], []
    for source, read in zip(asked, reads, strict=True):
        if read.cancelled():
            continue  # its pod has gone meanwhile
        names.append(source.name)
        state = health[source.name] = health_of(read, source, waited)
        if state.up:
            # Not the page of a while ago where another scrape has had a newer one: counters must not go back.
            page = source.page or read.result()
            pages.append(page)
            debug("page", source=source.name, bytes=len(page.body), up=True)
        else:
            debug("page", source=source.name, up=False, reason=state.reason)
    return tuple(pages), tuple(names)


def left(patience_seconds: float | None, wait_seconds: float | None, began: float) -> float | None:
    """What remains of a wait of `patience_seconds` that began with the scrape, inside the scrape's own."""
    waits = [seconds for seconds in (patience_seconds, wait_seconds) if seconds is not None]
    return max(0.0, min(waits) - (time.monotonic() - began)) if waits else None


def health_of(
    read: asyncio.Task[Health] | asyncio.Task[Page], source: KubeletSource | PageSource, waited_seconds: float
) -> Health:
    """How this scrape fared with a source, by the very read it waited for: another may have come and gone since.

    Raises:
        Exception: what a read raised that is no failure of a source, but of this program.
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
    # most often the last look is this one
    return last if last.up else replace(last, up=True, trouble=None)
