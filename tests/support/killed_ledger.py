"""A ledger and its file, kept by processes that are killed at random moments, one after the other.

    python -m tests.support.killed_ledger FOLDER KILLS

Each child keeps accounts as the exporter does (`Accounting`, beaten by a `Pulse`), of a node whose GPU draws power all
the time, and says down a pipe what it saw before it notes it, and once the file is written. After each kill the file is
held against that. Ends with 1 at the first fault; otherwise prints the figures as JSON. It is a program of its own,
since it forks, which no process with threads should.
"""

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from exporter.accounts.ledger import Ledger, Rules
from exporter.accounts.state_bytes import restore
from exporter.model.accounts import Account
from exporter.model.snapshot import Health, Snapshot
from exporter.node.accounting import Accounting, keep_in
from exporter.node.kept_accounts import KeptAccounts
from exporter.outputs.output import LOOK_AT_NODE, Need
from exporter.ownership.current import CurrentOwners
from exporter.pulse import Pulse
from exporter.sources.node_pods import NoPods
from exporter.sources.source import OptionalSource
from tests.support.looks import GPU, Looks, energy, row, whole

INTERVAL_NS = 4_000_000
MOST_SECONDS = 0.06
STARTED_NS = time.time_ns()


def keep(place: str, pipe: int) -> None:
    """What the child does, until it is killed."""
    kept, looks = KeptAccounts(), Looks()
    keep_in(place, kept, lambda *_: None)

    async def look(wait_seconds: float | None, needs: AbstractSet[Need] = LOOK_AT_NODE) -> Snapshot:
        now = kept.clock()
        kept.clock = lambda: now  # what is seen is dated to the nanosecond by what the page says
        drawn = now - STARTED_NS
        os.write(pipe, b"saw %d\n" % now)
        page = energy(str(drawn)) + row("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5") + energy(str(drawn), gpu=1)
        # one pod holds its GPU all the time, another one every now and then
        comes_and_goes = {"guest": whole(1)} if now // 10_000_000 % 2 else {}
        return looks.snapshot(page, {"resident": whole(0), **comes_and_goes})

    accounting = Accounting(
        kept=kept,
        rules=Rules(interval_ns=INTERVAL_NS),
        needs=LOOK_AT_NODE,
        asked_first=(),
        owners=CurrentOwners(looks.policy),
        on_first_look=lambda _: None,
        pods=OptionalSource(lambda: None, NoPods(Health(), lambda *_: None)),
    )
    clock = kept.clock

    async def beat() -> None:
        kept.clock = clock
        await accounting.beat(look)
        os.write(pipe, b"kept %d\n" % (kept.looked_at_ns or 0))

    async def live() -> None:
        pulse = Pulse(beat)
        pulse.every(INTERVAL_NS / 1e9)
        await asyncio.Event().wait()

    asyncio.run(live())


@dataclass
class Judge:
    """What the file must hold after each kill. `moments` are those of the looks that are in it."""

    moments: list[int] = field(default_factory=list)
    lost: int = 0
    before: dict[tuple[str, str], int] = field(default_factory=dict)
    gaps_ns: int = 0

    def judge(self, body: bytes, said: list[tuple[str, int]]) -> None:
        saw = [moment for what, moment in said if what == "saw"]
        kept = [moment for what, moment in said if what == "kept"]
        ledger = restore(body, 0, 0)
        newest = json.loads(body.partition(b"\n")[2])["saved_ns"]
        candidates = [*self.moments[-1:], *saw]
        assert newest in candidates, "the file holds a look that nobody had"
        assert newest >= max(kept, default=newest), "what had been kept is not there"
        self.moments += [moment for moment in saw if moment <= newest]
        lost = sum(moment > newest for moment in saw)
        assert lost <= 1, f"{lost} looks were lost"
        self.lost += lost
        self._check_sums(ledger)
        self._check_gaps(ledger)
        now = amounts(ledger)
        fell = {name: (value, now.get(name)) for name, value in self.before.items() if now.get(name, -1) < value}
        assert not fell, fell
        self.before = now

    def _check_sums(self, ledger: Ledger) -> None:
        """Every nanosecond and every microjoule from the first look to the last, over all kills."""
        passed_ns = self.moments[-1] - self.moments[0]
        of_gpu: dict[str, list[Account]] = {GPU(0): [], GPU(1): []}
        for account in ledger.accounts.rows:
            of_gpu[account.device.uuid].append(account)
        for accounts in of_gpu.values():
            # a millijoule for each nanosecond: a microjoule is a thousandth of that
            assert sum(account.amounts.get("energy_uj", 0) for account in accounts) == passed_ns * 1000
        (resident,) = (account for account in of_gpu[GPU(0)] if account.owner)
        assert resident.amounts.get("allocated_ns") == passed_ns
        assert resident.amounts["active_ns"] <= passed_ns // 2

    def _check_gaps(self, ledger: Ledger) -> None:
        apart = (later - sooner for sooner, later in pairwise(self.moments))
        expected = sum(between for between in apart if between > 2 * INTERVAL_NS)
        self.gaps_ns = ledger.accounts.gap_ns["exporter"]
        assert self.gaps_ns == expected, "a gap is what no look was made in, to the nanosecond"


def amounts(ledger: Ledger) -> dict[tuple[str, str], int]:
    """Every counter, by its row and name."""
    found: dict[tuple[str, str], int] = {}
    for account in ledger.accounts.rows:
        for name in ("allocated_ns", "active_ns", "idle_ns", "energy_uj"):
            found[str((account.owner, account.device)), name] = account.amounts.get(name, 0)
    return found


def killed(place: str, seconds: float, words: int) -> list[tuple[str, int]]:
    """What a child said, which was killed so many seconds after its first `words` words."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reads)
            keep(place, writes)
        finally:
            os._exit(1)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        first = b"".join(pipe.readline() for _ in range(words))
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        lines = (first + pipe.read()).splitlines(keepends=True)
    said = [line.split() for line in lines if line.endswith(b"\n")]
    return [(what.decode(), int(moment)) for what, moment in said]


def main(folder: Path, kills: int) -> None:
    place, judge, chance = folder / "state", Judge(), random.Random(1)
    for number in range(kills):
        # every other one is killed while it may not have kept anything yet
        said = killed(str(place), chance.uniform(0.0, MOST_SECONDS), words=1 + number % 2)
        if place.exists():
            judge.judge(place.read_bytes(), said)
    assert not list(folder.glob("*.unusable")), "a kill damaged the file"
    figures = {
        "kills": kills,
        "looks_kept": len(judge.moments),
        "looks_lost": judge.lost,
        "seconds": (judge.moments[-1] - judge.moments[0]) / 1e9,
        "gap_seconds": judge.gaps_ns / 1e9,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
