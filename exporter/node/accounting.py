"""The keeping of a node's accounts: a beat looks, notes and saves.

Scrapes change nothing (docs/developers/design.md#decisions).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from exporter import log
from exporter.accounts.ledger import Rules
from exporter.accounts.memory_looks import Ends, ends_of
from exporter.accounts.state_bytes import dump_in_slices, restore
from exporter.model.memo import Memo
from exporter.model.slices import at_once
from exporter.model.snapshot import KUBELET, LookFacts, Snapshot
from exporter.node.kept_accounts import KeptAccounts
from exporter.node.part import Asking, LookFor, Shows
from exporter.node.state_file import StateFile
from exporter.outputs.output import Need
from exporter.ownership.current import CurrentOwners
from exporter.sources.long_work import in_slices
from exporter.sources.node_pods import Pods
from exporter.sources.source import AskedSource, OnHealth, OptionalSource, Source, is_absent

if TYPE_CHECKING:
    from exporter.sources.kernel_log.kernel_log_source import KernelLog

WRITE_SECONDS = 5.0
_NOBODY = frozenset({"missing", "refused"})
REMEDY = (
    "to see what this program does, run: pod-gpu-metrics-exporter demo. On a GPU node,"
    " `pod-gpu-metrics-exporter doctor` says what is missing. Whatever starts later is found then"
)


def keep_in(path: str | None, kept: KeptAccounts, on_health: OnHealth) -> None:
    """Keep the accounts in this file from now on (None: in no file). A file that was not in use yet is read.

    A file that cannot be used is set aside, so that nobody else's file is overwritten. The file's accounts continue
    only if this process has counted nothing so far.
    """
    if path is None:
        kept.state_file = None
        return
    if kept.state_file is not None and kept.state_file.path == path:
        return
    file = StateFile(path, on_health)
    body = file.take_up()
    if body is not None:
        now = kept.clock()
        try:
            ledger = restore(body, now, now, kept.boot)
        except ValueError as error:
            file.set_aside(str(error))
        else:
            if kept.looked_at_ns is None:
                kept.ledger = ledger
                kept.accounts = ledger.accounts
                log.info("counters go on from their state", path=path, accounts=ledger.rows)
    kept.state_file = file


@dataclass(kw_only=True, eq=False)
class Accounting:
    """The beats with the settings of one configuration: they look, note and save.

    The accounts outlive it, in `kept`. `needs` is what the looks must bring. A beat waits for the sources
    `asked_first` as long as they take: a scrape does not wait long for the kubelet, but for a beat a slow kubelet still
    counts as there. While there is no page, `owners` tells the holders of the last page's devices. `on_first_look` is
    called with this process' first look. `pods` tells how containers ended.
    """

    adds_for = frozenset({Need.ACCOUNTS, Need.IDLE_SINCE})

    kept: KeptAccounts
    rules: Rules
    needs: AbstractSet[Need]
    asked_first: Sequence[Source]
    owners: CurrentOwners
    on_first_look: Callable[[Snapshot], None]
    pods: OptionalSource[Pods]
    kernel_log: "KernelLog | None" = None
    _ends: Memo[Ends] = field(default_factory=lambda: Memo({}), init=False)

    def __post_init__(self) -> None:
        self.interval_seconds = self.rules.interval_ns / 1e9
        if self.kernel_log is not None and self.kernel_log.sequence is None:
            self.kernel_log.sequence = self.kept.ledger.kernel_sequence
            self.kernel_log.events.resume(self.kept.ledger.holders.owners)

    @property
    def shown(self) -> Sequence[AskedSource]:
        """The file that keeps the accounts, if there is one."""
        return (self.kept.state_file,) if self.kept.state_file else ()

    async def add(self, asking: Asking, _: Snapshot) -> LookFacts:
        """The accounts. An output that needs ACCOUNTS shows all of them now, with those of containers that are gone."""
        if Need.ACCOUNTS in asking.needs:
            self.kept.ledger.note_shown()
        return {"accounts": self.kept.accounts, "hangs": self.kept.hang_watch.hangs}

    async def beat(self, look: LookFor) -> None:
        """Look once, and note it."""
        attempts = [attempt for source in self.asked_first if (attempt := source.begin())]
        if attempts:
            await asyncio.wait(attempts)
        snapshot = await look(None, self.needs)
        kept = self.kept
        is_first = kept.looked_at_ns is None
        kept.looked_at_ns = kept.clock()
        seen = snapshot
        if snapshot.joined is None:
            seen = replace(snapshot, owners=self.owners.owners_of(kept.ledger.holders.subjects))
        kept.ledger.clock_set_ns = kept.clock_set_ns()
        kernel_log = self.kernel_log
        if kernel_log is None or kernel_log.sequence is None or kernel_log.health.up is False:
            kept.ledger.kernel_sequence = None  # XIDs of pages count instead
        else:
            sequence = kernel_log.events.before_waiting(kernel_log.sequence)
            kept.ledger.note_kernel_log(kernel_log.events.take(), sequence, kept.looked_at_ns)
        work = kept.ledger.work_for(seen, kept.looked_at_ns, self.rules, self._ends_now())
        try:
            await in_slices(work)
        except asyncio.CancelledError:
            at_once(work)  # finish, so that the last file has the whole look
            raise
        await in_slices(kept.hang_watch.work_for(seen, kept.ledger.holders, kept.looked_at_ns, self.rules.interval_ns))
        accounts = kept.ledger.accounts
        await self.save()
        # shown only after the file is written: else a counter would fall if the process were killed in between
        kept.accounts = accounts
        if is_first:
            self.on_first_look(snapshot)

    def _ends_now(self) -> Ends | None:
        """The last ends of containers; None if no pods are known."""
        pods = self.pods.now.pods_of_names
        return self._ends.of(ends_of, pods) if pods else None

    async def save(self) -> None:
        """Write the file, if there is one: in a thread, once at a time. A cancelled caller does not stop it.

        Without a look it writes nothing, since another process' file may be newer. Looks wait WRITE_SECONDS for a hung
        disk.
        """
        kept = self.kept
        file = self.kept.state_file
        if file is None or kept.looked_at_ns is None:
            return
        if kept.writing is None or kept.writing.done():
            body = await in_slices(dump_in_slices(kept.ledger, kept.looked_at_ns, kept.boot))
            kept.writing = asyncio.create_task(_write(file, body))
        await asyncio.wait((kept.writing,), timeout=WRITE_SECONDS)
        if not kept.writing.done():
            file.note_slow(WRITE_SECONDS)


async def _write(file: StateFile, body: bytes) -> None:
    began = time.monotonic()
    error = await asyncio.to_thread(file.write, body)
    file.note(error, time.monotonic() - began)


def say_if_nothing_is_here(machine: Sequence[Shows], snapshot: Snapshot) -> None:
    """Tell a user without a GPU what to do, if there is no kubelet's socket, no page, and no source of the machine.

    A GPU node has the driver's files or a kubelet from the start. There every source's own line in the log is enough.
    """
    asked = {name: snapshot.health[name] for name in (KUBELET, *snapshot.page_sources)}
    of_machine = {source.name: source.health for shows in machine for source in shows.shown}
    if snapshot.health[KUBELET].reason != "missing" or not all(health.reason in _NOBODY for health in asked.values()):
        return
    # a user who names a source (--nvml.mode on) knows which sources there should be
    if not all(is_absent(health) for health in of_machine.values()):
        return
    looked_for = "; ".join(f"{name}: {health.message}" for name, health in {**asked, **of_machine}.items())
    log.info("this does not look like a GPU node", looked_for=looked_for, remedy=REMEDY)
