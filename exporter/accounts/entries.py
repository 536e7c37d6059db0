"""The entries of the ledger: one for each container and device, kept for a while after the container is gone.

Tests: tests/accounts/test_entries.py, tests/accounts/test_ledger.py.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import itemgetter

from exporter.model.accounts import Account
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.nothing import NOTHING
from exporter.model.pods import Owner

# 16 GPUs of 7 instances with 16 shares each have 1,792 entries, and 112 of nobody. An entry takes about 1.4 kB, with
# its counters.
MOST_ACCOUNTS = 4_096
_SHOWN_ENOUGH = 2
_BETWEEN_VALUES = "/"  # no value of such a label has it
# powers of ten
NANOSECONDS = 9
MICROJOULES = 6
COUNTS = 0


@dataclass(frozen=True, slots=True)
class AmountFamily:
    """A family of counters by container.

    `amount` is its name in the accounts, in units of 10**-`power`; `labels` divide it.
    """

    name: str
    amount: str
    power: int
    labels: tuple[str, ...] = ()

    def labelled(self, text: str) -> Iterable[tuple[str, str]]:
        """The labels with their values, of a text of `joined_values`."""
        return zip(self.labels, text.split(_BETWEEN_VALUES), strict=True)


def joined_values(*values: str) -> str:
    """The values of the labels that divide an amount as the one text under which it is counted."""
    return _BETWEEN_VALUES.join(values)


@dataclass(slots=True, eq=False)
class Entry:
    """The entry of one container and one device; see `Account`. Entries are compared by identity.

    `began_at_ns` is the moment of the first look that saw it; None if that is not known, or if the labels have changed
    since. `gone_at_ns` is the moment since which the container does not hold the device, `shown_before` how many times
    the accounts had been shown by then. A dropped entry is no account any more.

    Since `idle_since_at_ns` the container was idle whenever its use was known; None if it was not idle when its use was
    last known. `idle_seen_at_ns` is the last moment at which a page showed it idle.
    """

    owner: Owner | None
    uid: str
    device: DeviceKey
    labels: AddedLabels = ()
    ratio: float | None = None
    amounts: dict[str, int] = field(default_factory=dict)
    by_label: dict[str, dict[str, int]] = field(default_factory=dict)
    gone_at_ns: int | None = None
    shown_before: int = 0
    began_at_ns: int | None = None
    idle_since_at_ns: int | None = None
    idle_seen_at_ns: int = 0
    is_dropped: bool = field(default=False, init=False)

    def add(self, name: str, amount: int, label: str = "") -> None:
        """Add to an amount, which begins at 0. If labels divide it, `label` is `joined_values`."""
        if label:
            amounts = self.by_label.setdefault(name, {})
            amounts[label] = amounts.get(label, 0) + amount
        else:
            self.amounts[name] = self.amounts.get(name, 0) + amount

    def account(self, clock_set_ns: int = 0, at_ns: int | None = None) -> Account:
        """The account as it is now.

        `clock_set_ns` is by how much the machine's clock was set since the process started. `at_ns` is the moment of
        this look. The account says since when the container is idle only if this look saw it idle.
        """
        # Every look makes an account of every entry. This does the same as Account(…), in two thirds of the time.
        by_label = {name: dict(amounts) for name, amounts in self.by_label.items()} if self.by_label else NOTHING
        began_ns = None if self.began_at_ns is None else self.began_at_ns + clock_set_ns
        idle_ns = None
        if self.idle_since_at_ns is not None and self.idle_seen_at_ns == at_ns:
            idle_ns = self.idle_since_at_ns + clock_set_ns
        values = (self.owner, self.device, self.labels, self.ratio, self.amounts.copy(), by_label, began_ns, idle_ns)
        return tuple.__new__(Account, values)


class Entries:
    """All entries by container, pod's uid and device. At most MOST_ACCOUNTS stay: the entries gone longest make room.

    `at_ns` is the moment of this look, at which new entries begin.
    """

    def __init__(self) -> None:
        self.shown = 0
        self.at_ns: int | None = None
        self._all: dict[tuple[Owner | None, str, DeviceKey], Entry] = {}
        self._uids: dict[tuple[Owner | None, DeviceKey], str] = {}
        self._gone_first: deque[Entry] | None = None  # the order in which they make room, until another is gone

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all.values())

    def of(self, owner: Owner | None, device: DeviceKey, uid: str = "") -> Entry:
        """The entry of a container that holds a device, or nobody's; a new entry if there is none.

        An entry without a uid gets `uid`. Without `uid`, the entry of the last container of that name is meant.
        """
        last = self._uids.get((owner, device))
        if uid and last == "":
            entry = self._all.pop((owner, "", device))
            entry.uid = uid
            self.put(entry)
        elif not uid and last:
            uid = last
        kept = self._all.get((owner, uid, device))
        if kept is None:
            kept = Entry(owner, uid, device, began_at_ns=self.at_ns)
            self._make_room()
            self.put(kept)
        self._uids[owner, device] = uid
        return kept

    def has_nobodys(self, device: DeviceKey) -> bool:
        """Whether there is nobody's entry of a device."""
        return (None, device) in self._uids

    def put(self, entry: Entry) -> None:
        """Take an entry in, or drop it if there is no room for it."""
        if len(self._all) >= MOST_ACCOUNTS:
            entry.is_dropped = True
            return
        self._all[entry.owner, entry.uid, entry.device] = entry
        self._uids[entry.owner, entry.device] = entry.uid

    def note_held(self, held: set[Entry], at_ns: int) -> None:
        """Note the entries that are held, or are nobody's part of a device that is there.

        All others are gone from here on.
        """
        for entry in self._all.values():
            if entry in held:
                entry.gone_at_ns = None
            elif entry.gone_at_ns is None:
                self.note_gone(entry, at_ns)

    def note_gone(self, entry: Entry, at_ns: int) -> None:
        """Note that the entry's container, or its device, is gone."""
        entry.gone_at_ns = at_ns
        entry.shown_before = self.shown
        entry.ratio = None
        entry.idle_since_at_ns = None
        self._gone_first = None

    def forget(self, before_ns: int) -> None:
        """Drop the entries that have been gone since this moment or longer, and have been shown since."""
        old = [
            entry
            for entry in self._all.values()
            if entry.gone_at_ns is not None
            and entry.gone_at_ns <= before_ns
            and self.shown - entry.shown_before >= _SHOWN_ENOUGH
        ]
        for entry in old:
            self._drop(entry)

    def _make_room(self) -> None:
        if len(self._all) < MOST_ACCOUNTS:
            return
        if self._gone_first is None:
            gone = [(entry.gone_at_ns, entry) for entry in self if entry.gone_at_ns is not None]
            self._gone_first = deque(entry for _, entry in sorted(gone, key=itemgetter(0)))
        while self._gone_first:
            entry = self._gone_first.popleft()
            if entry.gone_at_ns is not None and not entry.is_dropped:
                self._drop(entry)
                return

    def _drop(self, entry: Entry) -> None:
        entry.is_dropped = True
        del self._all[entry.owner, entry.uid, entry.device]
        if self._uids.get((entry.owner, entry.device)) == entry.uid:
            del self._uids[entry.owner, entry.device]
