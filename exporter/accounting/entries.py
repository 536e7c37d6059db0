"""The entries of the ledger: one for each container and device, kept for a while after the container is gone."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from types import MappingProxyType

from exporter.model.accounts import Account
from exporter.model.devices import AddedLabels, DeviceKey
from exporter.model.pods import Owner

# 16 GPUs of 7 instances with 16 shares each are 1,792 and 112 of nobody. One takes about 1.4 kB, counters included.
MOST_ACCOUNTS = 4_096
_SHOWN_ENOUGH = 2
_NO_COUNTS: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True, eq=False)
class Entry:
    """What one container has had of one device; see `Account`. Two entries are the same only as one object.

    `ratio` is a part and what it is a part of. `gone_at_ns` is since when the device is not the container's,
    `shown_before` how many times accounts had been shown by then. A dropped entry is no account any more.
    """

    owner: Owner | None
    uid: str
    device: DeviceKey
    labels: AddedLabels = ()
    ratio: float | None = None
    allocated_ns: int | None = None
    active_ns: int | None = None
    idle_ns: int | None = None
    energy_uj: int | None = None
    xids: dict[str, int] = field(default_factory=dict)
    throttled_ns: dict[str, int] = field(default_factory=dict)
    observed_ns: int | None = None
    gone_at_ns: int | None = None
    shown_before: int = 0
    is_dropped: bool = False

    def add_energy(self, amount_uj: int) -> None:
        """Count energy."""
        self.energy_uj = (self.energy_uj or 0) + amount_uj

    def account(self) -> Account:
        """As it stands now."""
        # Each look makes one of every entry: this does what Account(…) does, in two thirds of the time.
        return tuple.__new__(
            Account,
            (
                self.owner,
                self.device,
                self.labels,
                self.ratio,
                self.allocated_ns,
                self.active_ns,
                self.idle_ns,
                self.energy_uj,
                dict(self.xids) if self.xids else _NO_COUNTS,
                dict(self.throttled_ns) if self.throttled_ns else _NO_COUNTS,
                self.observed_ns,
            ),
        )


class Entries:
    """All entries by container, pod's uid and device. At most MOST_ACCOUNTS: those gone longest make room."""

    def __init__(self) -> None:
        self.shown = 0
        self._all: dict[tuple[Owner | None, str, DeviceKey], Entry] = {}
        self._uids: dict[tuple[Owner | None, DeviceKey], str] = {}
        self._gone_first: deque[Entry] | None = None  # in the order in which they make room, until another is gone

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._all.values())

    def of(self, owner: Owner | None, device: DeviceKey, uid: str = "") -> Entry:
        """The entry of a container that holds a device, or nobody's; a new one where there is none.

        A uid that was not known before becomes the entry's. Without a uid, the last container of the name is meant.
        """
        last = self._uids.get((owner, device))
        if uid and last == "":
            entry = self._all.pop((owner, "", device))
            entry.uid = uid
            self.put(entry)
        elif not uid and last:
            uid = last
        found = self._all.get((owner, uid, device))
        if found is None:
            found = Entry(owner, uid, device, allocated_ns=None if owner is None else 0)
            self._make_room()
            self.put(found)
        self._uids[owner, device] = uid
        return found

    def has_nobodys(self, device: DeviceKey) -> bool:
        """Whether there is an entry of what nobody had of a device."""
        return (None, device) in self._uids

    def put(self, entry: Entry) -> None:
        """Take an entry in; where there is no room, it is one that nobody is shown."""
        if len(self._all) >= MOST_ACCOUNTS:
            entry.is_dropped = True
            return
        self._all[entry.owner, entry.uid, entry.device] = entry
        self._uids[entry.owner, entry.device] = entry.uid

    def note_held(self, held: set[Entry], at_ns: int) -> None:
        """From here on these are held, or nobody's part of a device that is there; all others are gone."""
        for entry in self._all.values():
            if entry in held:
                entry.gone_at_ns = None
            elif entry.gone_at_ns is None:
                self.note_gone(entry, at_ns)

    def note_gone(self, entry: Entry, at_ns: int) -> None:
        """The entry's container, or its device, is not there any more."""
        entry.gone_at_ns, entry.shown_before, entry.ratio = at_ns, self.shown, None
        self._gone_first = None

    def forget(self, before_ns: int) -> None:
        """Drop those that are gone since this moment, or longer, and were shown since."""
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
