"""The check of passwords of HTTP basic authentication against bcrypt hashes, also while somebody tries wrong passwords.

A check takes 60 ms of a core (bcrypt, cost 10). So checks are made one after the other, and each request waits for its
turn. The turn goes round the clients' addresses, so that many requests from one address delay only each other. When too
many requests wait, the address with the most requests loses its newest: a request from another address still finds a
place. A check goes on even if its client has left, so that the client's next scrape finds the password checked.

Tests: tests/web/test_protection.py.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

# So many checks take 8 s at cost 10. Each holds a connection; together they hold a quarter of all (server.py).
MOST_UNCHECKED_PASSWORDS = 128
MOST_WRONG_PASSWORDS = 1000
# bcrypt ignores further bytes of a password
_BCRYPT_BYTES = 72
# the position of the cost in $2b$10$…; the cost is the binary logarithm of the work
_COST = slice(4, 6)
# The hash of an unknown user. Its salt and digest were made of no password, so none matches.
_NOBODY = b"$2b$%02d$" + b"." * 53
_IPV6_NETWORK_BITS = 64


class TooMany(Exception):
    """Too many passwords wait for a check; the client should come back in a second."""


class Passwords:
    """Checks `Authorization: Basic` against bcrypt hashes.

    It remembers checked passwords by a keyed digest: the right password of each user, and a bounded number of wrong
    passwords. So once a right password was checked, it never waits behind wrong ones. The check of an unknown user
    takes as long as that of a known user.
    """

    def __init__(self, users: Mapping[str, bytes]) -> None:
        """`users` are bcrypt hashes by name."""
        self._users = users
        self._most_work = max((_cost(hashed) for hashed in users.values()), default=0)
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._turns = _Turns()
        self._bcrypt: ModuleType | None = None

    @property
    def unchecked(self) -> int:
        """The number of passwords that are being checked or wait for a check."""
        return self._turns.count

    @property
    def wrong(self) -> int:
        """The number of wrong passwords that are remembered; at most MOST_WRONG_PASSWORDS."""
        return len(self._wrong)

    async def are_right(self, header: str, peer: str = "") -> bool:
        """Whether the header has a user's name and password. `peer` is the client's address. Raises TooMany."""
        credentials = _read_basic(header)
        if credentials is None:
            return False
        user, password = credentials
        digest = hmac.digest(self._key, b"%d %b%b" % (len(user), user.encode(), password), hashlib.sha256)
        is_right = self._is_right(user, digest)
        if is_right is not None:
            return is_right
        await self._turns.take(_network(peer))
        try:
            is_right = self._is_right(user, digest)
            return await self._check(user, password, digest) if is_right is None else is_right
        finally:
            self._turns.give_back()

    def _is_right(self, user: str, digest: bytes) -> bool | None:
        """Whether a password is right by an earlier check; None if it has not been checked."""
        if hmac.compare_digest(self._right.get(user, b""), digest):
            return True
        return False if digest in self._wrong else None

    async def _check(self, user: str, password: bytes, digest: bytes) -> bool:
        if self._bcrypt is None:
            import bcrypt  # noqa: PLC0415 - its memory only where there are passwords

            self._bcrypt = bcrypt
        hashed = self._users.get(user, _NOBODY % self._most_work)
        matches = await asyncio.to_thread(self._compare, password[:_BCRYPT_BYTES], hashed)
        if matches and user in self._users:
            self._right[user] = digest
            return True
        self._wrong[digest] = None
        while len(self._wrong) > MOST_WRONG_PASSWORDS:
            self._wrong.popitem(last=False)
        return False

    def _compare(self, password: bytes, hashed: bytes) -> bool:
        """Whether the password matches.

        Every check takes as long as with the costliest hash, so that its time does not tell whether a user exists.
        """
        assert self._bcrypt is not None  # noqa: S101 - for mypy
        matches: bool = self._bcrypt.checkpw(password, hashed)
        # 2^c + 2^c + 2^(c+1) + … + 2^(most-1) = 2^most
        for cost in range(_cost(hashed), self._most_work):
            self._bcrypt.checkpw(password, _NOBODY % cost)
        return matches


class _Turns:
    """A turn that one task has at a time. If tasks of several groups wait, the turn passes from group to group."""

    def __init__(self) -> None:
        self.count = 0  # the tasks that have the turn or wait for it
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, group: str) -> None:
        """Wait for the turn; `give_back` ends it. Raises TooMany: no place is left, or another group got the place."""
        if not self.count:
            self.count = 1
            return
        if self.count >= MOST_UNCHECKED_PASSWORDS:
            self._send_one_away(group)
        self.count += 1
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # this task got the turn, and was cancelled before it could run
            else:
                self._leave(group, turn)
            raise

    def give_back(self) -> None:
        """Pass the turn to the next group's oldest task."""
        self.count -= 1
        while self._waiting:
            group, waiting = next(iter(self._waiting.items()))
            turn = waiting.popleft()
            self._waiting.move_to_end(group)
            if not waiting:
                del self._waiting[group]
            if not turn.done():
                turn.set_result(None)
                return
            self.count -= 1  # that task was cancelled, and has not yet left the queue itself

    def _send_one_away(self, newcomers_group: str) -> None:
        """Make a place: the youngest task of the largest group gets TooMany, which may be the newcomer itself."""
        crowded = max(self._waiting, key=lambda group: len(self._waiting[group]))
        if len(self._waiting.get(newcomers_group, ())) >= len(self._waiting[crowded]):
            raise TooMany
        youngest = self._waiting[crowded][-1]
        self._leave(crowded, youngest)
        youngest.set_exception(TooMany())

    def _leave(self, group: str, turn: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(group)
        if waiting is not None and turn in waiting:
            waiting.remove(turn)
            self.count -= 1
            if not waiting:
                del self._waiting[group]


def _cost(hashed: bytes) -> int:
    return int(hashed[_COST])


def _network(peer: str) -> str:
    """The group of an address: for IPv6 its network of 64 bits, all of which one host can use; else the address."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> (address.max_prefixlen - _IPV6_NETWORK_BITS))
    return peer


def _read_basic(header: str) -> tuple[str, bytes] | None:
    """The user and the password in an Authorization header; None for any other scheme or form."""
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:
        return None
