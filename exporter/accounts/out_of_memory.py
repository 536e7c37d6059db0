"""The judge of ends: did a container end since its GPU's memory was full? Pure. It says no more than a suspicion.

A program that lacks GPU memory mostly ends by itself, with an exit code: CUDA's error 2 becomes an exception of Python,
or an abort. Nobody else hears of it. The signs are weak: frameworks keep memory that they do not use, so a GPU may be
full for hours; and a large allocation may fail while much is free. So three words say how strong the suspicion is:

- likely: the CUDA probe counted allocations of the container that failed for lack of memory;
- suspected: a look saw the memory full, and it had filled while the container held the device;
- possible: it was as full all along, or a neighbour had most of it, or the driver reported an XID of a program beside.

Nothing is said of an end that something else explains: exit code 0, a signal from outside, a pod that was deleted,
evicted or preempted, a container that did not start, the kernel's own out-of-memory kill (that is the machine's
memory), and an error of the GPU itself.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from exporter.accounts.entries import Entry
from exporter.dcgm.xids import verdict_of
from exporter.model.accounts import SuspectedOutOfMemory, Suspicion
from exporter.model.devices import DeviceKey
from exporter.model.pods import ContainerEnd, Owner

WINDOW_NS = 60_000_000_000
"""The time before an end whose looks and errors count. dcgm-exporter reads memory every 30 s by default."""
# A kubelet says the second in which a container ended, without its fraction.
_SECOND_NS = 1_000_000_000
# Of reports of "CUDA out of memory" with the free memory beside, most had less than 5 % of it free.
FULL = 0.95
# Memory that neighbours hold: what is left may be too little for one allocation, though the device is not full.
CROWDED = 0.8
# Memory that grew by this part of the device filled up. Below that, an allocator keeps what it once took.
RISEN = 0.1
_MOST_USERS = 4
# A shell's codes of programs that did not start, and of signals that others send: SIGHUP, SIGINT, SIGKILL, SIGTERM.
_OF_OTHERS = frozenset({126, 127, 128, 129, 130, 137, 143})
# The kubelet's and the runtimes' words for ends that are not a program's own.
_REASONS_OF_OTHERS = frozenset(
    {"OOMKilled", "ContainerCannotRun", "StartError", "ContainerStatusUnknown", "DeadlineExceeded"}
)


@dataclass(slots=True, eq=False)
class SeenMemory:
    """The memory of a device (MiB), as all looks from `since_at_ns` to `at_ns` saw it.

    `holders` are its holders then; `users` are the containers whose processes used the most of it, if that is measured.
    """

    since_at_ns: int
    at_ns: int
    used_mib: float
    all_mib: float
    holders: list[Entry] = field(default_factory=list)
    users: list[tuple[Owner, float]] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The part in use, from 0 to 1."""
        return self.used_mib / self.all_mib

    def is_same(self, other: "SeenMemory") -> bool:
        """Whether another look saw the same."""
        mine = (self.used_mib, self.all_mib, self.holders, self.users)
        return mine == (other.used_mib, other.all_mib, other.holders, other.users)

    def of_others(self, owner: Owner) -> list[tuple[Owner, float]]:
        """The other containers that use it, the largest part first."""
        return [(user, mib) for user, mib in self.users if user != owner]


def largest(users: Sequence[tuple[Owner, float]]) -> list[tuple[Owner, float]]:
    """The users that are worth keeping: those with the most memory."""
    return sorted(users, key=lambda user: (-user[1], user[0]))[:_MOST_USERS]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOfHolder:
    """The end of a container that held a device, and what was seen of the device.

    `ended_at_ns` is a moment of the looks' clock, `looks` are the oldest first. `xids` are the XIDs of the device, and
    `failed_allocations` the container's allocations that failed for lack of memory, both about the time of the end.
    """

    owner: Owner
    device: DeviceKey
    end: ContainerEnd
    ended_at_ns: int
    looks: Sequence[SeenMemory]
    xids: AbstractSet[int] = frozenset()
    failed_allocations: int = 0


def judge(held: EndOfHolder) -> SuspectedOutOfMemory | None:
    """The suspicion; None if nothing speaks for it, or something else explains the end."""
    if is_explained(held.end) or any(verdict_of(xid) != "ok" for xid in held.xids):
        return None
    seen = _seen_by(held)
    if not seen:
        return None
    fullest = max(seen, key=lambda look: (look.ratio, look.at_ns))
    suspicion = _suspicion(held, seen, fullest)
    if suspicion is None:
        return None
    own = dict(fullest.users).get(held.owner)
    neighbour, neighbour_mib = next(iter(fullest.of_others(held.owner)), (None, 0.0))
    return SuspectedOutOfMemory(
        owner=held.owner,
        device=held.device,
        ended_ns=round(held.end.at_seconds * 1e9),
        exit_code=held.end.exit_code,
        suspicion=suspicion,
        used_mib=fullest.used_mib,
        all_mib=fullest.all_mib,
        seen_before_ns=max(0, held.ended_at_ns - fullest.at_ns),
        own_mib=own,
        neighbour=neighbour,
        neighbour_mib=neighbour_mib,
        failed_allocations=held.failed_allocations,
        xids=tuple(sorted(held.xids)),
    )


def is_explained(end: ContainerEnd) -> bool:
    """Whether the end itself says that it was not for lack of GPU memory."""
    if end.exit_code in _OF_OTHERS or end.exit_code == 0:
        return True
    return end.is_ordered or end.reason in _REASONS_OF_OTHERS


def _seen_by(held: EndOfHolder) -> list[SeenMemory]:
    """The looks of the last minute before the end at which the container held the device."""
    until = held.ended_at_ns + _SECOND_NS
    return [
        look
        for look in held.looks
        if look.since_at_ns <= until
        and look.at_ns >= held.ended_at_ns - WINDOW_NS
        and any(entry.owner == held.owner for entry in look.holders)
    ]


def _suspicion(held: EndOfHolder, seen: Sequence[SeenMemory], fullest: SeenMemory) -> Suspicion | None:
    """How much speaks for it; None: nothing does."""
    if held.failed_allocations:
        return Suspicion.LIKELY
    is_full = fullest.ratio >= FULL
    of_others = sum(mib for _, mib in fullest.of_others(held.owner))
    if not is_full and of_others < CROWDED * fullest.all_mib:
        return None
    lowest = min(look.ratio for look in seen)
    has_risen = fullest.ratio - lowest >= RISEN
    if is_full and has_risen and not held.xids:
        return Suspicion.SUSPECTED
    return Suspicion.POSSIBLE
