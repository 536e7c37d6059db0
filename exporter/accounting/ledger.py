"""The ledger: what each container has had of each device, look by look. Pure, except for what it remembers."""

from dataclasses import dataclass

from exporter.model.accounts import Accounts
from exporter.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How accounts are kept: the settings of --accounting.…

    A device is idle below `idle_below` (0 to 1). Looks are `interval_ns` apart. The account of a container that is gone
    ends after `keep_ns`.
    """

    idle_below: float = 0.05
    interval_ns: int = 10_000_000_000
    keep_ns: int = 300_000_000_000


class Ledger:
    """Keeps the accounts. Only the looks of the service's own pulse are noted: scrapes change nothing."""

    def __init__(self) -> None:
        self.accounts = Accounts()

    @property
    def rows(self) -> int:
        """How many accounts are remembered; at most MOST_ACCOUNTS."""
        return len(self.accounts.rows)

    def note(self, snapshot: Snapshot, at_ns: int, rules: Rules) -> None:
        """A look of the pulse, at a moment of a clock that never steps back; `accounts` is then a new object."""
        raise NotImplementedError

    def note_shown(self) -> None:
        """Somebody was shown the accounts: those of containers that are gone are to be shown twice."""
