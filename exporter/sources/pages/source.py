"""A source of pages of GPU samples, wherever they come from."""

import asyncio
from collections.abc import Coroutine
from typing import Protocol

from exporter.model.pages import Page
from exporter.sources.source import Source


class PageSource(Source, Protocol):
    """What a look needs of one. Its attempt's result is the page; a failure is raised as a SourceError."""

    @property
    def page(self) -> Page | None:
        """The newest page, as long as somebody uses it."""

    @property
    def is_kept(self) -> bool:
        """Whether the next read may well be the same page again: a file that has not changed."""

    @property
    def if_slow(self) -> str:
        """What to do where it does not answer in time."""

    def begin(self) -> asyncio.Task[Page]:
        """The read that runs, or a new one."""

    def wait(self, seconds: float | None) -> Coroutine[None, None, None]:
        """Until the read in flight has ended, no longer than `seconds`."""
