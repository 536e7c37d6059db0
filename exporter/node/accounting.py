"""Keeping the accounts of a node: with each beat a look that the ledger notes.

Scrapes read what the last beat left, and change nothing of it (docs/decisions/04-who-ticks.md).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet

from exporter.accounting.ledger import Rules
from exporter.model.accounts import Accounts
from exporter.model.snapshot import Snapshot
from exporter.node.lasting import Lasting
from exporter.outputs.output import Need
from exporter.sources.source import Source

LookFor = Callable[[None, AbstractSet[Need]], Awaitable[Snapshot]]


class Accounting:
    """What the node of one configuration does for the accounts. The accounts themselves outlive it, in `lasting`."""

    def __init__(
        self, *, lasting: Lasting, rules: Rules, needs: AbstractSet[Need], asked_first: Sequence[Source]
    ) -> None:
        """`needs` is what the looks are to bring. `asked_first` are waited for however long they take.

        A scrape does not wait long for the kubelet. A beat has the time, and to it a slow kubelet is none that is gone.
        """
        self.interval_seconds = rules.interval_ns / 1e9
        self._lasting = lasting
        self._rules = rules
        self._needs = needs
        self._asked_first = tuple(asked_first)

    def show(self) -> Accounts:
        """The accounts, which somebody is shown now."""
        self._lasting.ledger.note_shown()
        return self._lasting.ledger.accounts

    async def beat(self, look: LookFor) -> None:
        """Look once, and note it."""
        attempts = [attempt for source in self._asked_first if (attempt := source.begin())]
        if attempts:
            await asyncio.wait(attempts)
        snapshot = await look(None, self._needs)
        self._lasting.ledger.note(snapshot, self._lasting.clock(), self._rules)
