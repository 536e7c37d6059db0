"""Keeping the accounts of a node: with each beat a look, which the ledger notes, and then the file.

Scrapes read what the last beat left, and change nothing of it (docs/decisions/04-who-ticks.md).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from exporter.accounting.ledger import Rules
from exporter.accounting.state import dump_in_slices, restore
from exporter.attribution.current import CurrentOwners
from exporter.log import log
from exporter.model.accounts import Accounts
from exporter.model.slices import at_once
from exporter.model.snapshot import Snapshot
from exporter.node.lasting import Lasting
from exporter.node.state_file import StateFile
from exporter.outputs.output import Need
from exporter.sources.slices import in_slices
from exporter.sources.source import Source

WRITE_SECONDS = 5.0
LookFor = Callable[[None, AbstractSet[Need]], Awaitable[Snapshot]]


def keep_in(path: str | None, lasting: Lasting) -> None:
    """Keep the accounts in this file from now on, or in none. One that was not in use yet is read.

    It is then set aside if it cannot be used, so that nobody else's file is ever overwritten. What it holds goes on
    only where nothing was counted so far: what this process has counted is newer.
    """
    if path is None:
        lasting.state_file = None
        return
    if lasting.state_file is not None and lasting.state_file.path == path:
        return
    file = StateFile(path, lasting.telemetry.note_health)
    body = file.take_up()
    if body is not None:
        now = lasting.clock()
        try:
            ledger = restore(body, now, now, lasting.boot)
        except ValueError as error:
            file.set_aside(str(error))
        else:
            if lasting.looked_at_ns is None:
                lasting.ledger, lasting.accounts = ledger, ledger.accounts
                log(logging.INFO, "counters go on from their state", path=path, accounts=ledger.rows)
    lasting.state_file = file


class Accounting:
    """What the node of one configuration does for the accounts. The accounts themselves outlive it, in `lasting`."""

    def __init__(
        self,
        *,
        lasting: Lasting,
        rules: Rules,
        needs: AbstractSet[Need],
        asked_first: Sequence[Source],
        owners: CurrentOwners,
    ) -> None:
        """`needs` is what the looks are to bring. `asked_first` are waited for however long they take.

        While the page is away, `owners` say who holds the devices of the page before.

        A scrape does not wait long for the kubelet. A beat has the time, and to it a slow kubelet is none that is gone.
        """
        self.interval_seconds = rules.interval_ns / 1e9
        self._lasting = lasting
        self._rules = rules
        self._needs = needs
        self._asked_first = tuple(asked_first)
        self._owners = owners

    def show(self) -> Accounts:
        """The accounts, which somebody is shown now."""
        self._lasting.ledger.note_shown()
        return self._lasting.accounts

    async def beat(self, look: LookFor) -> Snapshot:
        """Look once, and note it; what was seen."""
        attempts = [attempt for source in self._asked_first if (attempt := source.begin())]
        if attempts:
            await asyncio.wait(attempts)
        snapshot = await look(None, self._needs)
        lasting = self._lasting
        lasting.looked_at_ns = lasting.clock()
        seen = snapshot
        if snapshot.joined is None:
            seen = replace(snapshot, owners=self._owners.owners_of(lasting.ledger.holders.subjects))
        work = lasting.ledger.work_for(seen, lasting.looked_at_ns, self._rules)
        try:
            await in_slices(work)
        except asyncio.CancelledError:
            at_once(work)  # the file that is written last is to have all of the look
            raise
        accounts = lasting.ledger.accounts
        await self.save()
        # Not before: what was shown and not kept would fall if the process were killed here.
        lasting.accounts = accounts
        return snapshot

    async def save(self) -> None:
        """Write the file, if there is one: off the event loop, and once at a time. Whoever is cancelled leaves it be.

        A process that has not looked has nothing to write: another one's file may be newer. A disk that hangs is not
        waited for longer than WRITE_SECONDS; the looks go on without it.
        """
        lasting, file = self._lasting, self._lasting.state_file
        if file is None or lasting.looked_at_ns is None:
            return
        if lasting.writing is None or lasting.writing.done():
            body = await in_slices(dump_in_slices(lasting.ledger, lasting.looked_at_ns, lasting.boot))
            lasting.writing = asyncio.create_task(_write(file, body))
        await asyncio.wait((lasting.writing,), timeout=WRITE_SECONDS)
        if not lasting.writing.done():
            file.note_slow(WRITE_SECONDS)


async def _write(file: StateFile, body: bytes) -> None:
    began = time.monotonic()
    error = await asyncio.to_thread(file.write, body)
    file.note(error, time.monotonic() - began)
