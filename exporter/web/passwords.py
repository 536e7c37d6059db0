"""Checking passwords of HTTP basic authentication against bcrypt hashes, under a crowd of wrong ones.

One check costs 60 ms of a core (bcrypt, cost 10), so they are made one after the other, and whoever wants to be checked
waits for a turn. Turns go round the peers' addresses: a crowd at one address waits for itself. The limit on those who
wait is kept by sending away the youngest of the most crowded address, so there is a place for whoever comes from
another. A check goes on when its peer has gone: the next scrape then finds the password known.
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

# 8 s of checks at cost 10, and each holds a connection: a quarter of what there can be (server.py).
MOST_UNCHECKED_PASSWORDS = 128
MOST_WRONG_PASSWORDS = 1000
# bcrypt reads no more of a password
_BCRYPT_BYTES = 72
# $2b$10$…: the cost is the binary logarithm of the work
_COST = slice(4, 6)
# A salt and a digest of nobody's.
_NOBODY = b"$2b$%02d$" + b"." * 53
_IPV6_NETWORK_BITS = 64


class TooMany(Exception):
    """More passwords wait to be checked than is allowed."""


class Passwords:
    """Checks `Authorization: Basic` against bcrypt hashes.

    What was checked is remembered under a keyed digest: the right password of each user, and a bounded number of wrong
    ones. A right one is therefore never behind a crowd of wrong ones. An unknown user costs as much as any known one.
    """

    def __init__(self, users: Mapping[str, bytes]) -> None:
        """`users` are bcrypt hashes by name."""
        self._users = users
        self._most_work = max((_cost(hashed) for hashed in users.values()), default=0)
        self._key = secrets.token_bytes(32)
        self._right: dict[str, bytes] = {}
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._turns = _Turns(MOST_UNCHECKED_PASSWORDS)
        self._bcrypt: ModuleType | None = None

    @property
    def unchecked(self) -> int:
        """How many are being checked, or wait for it."""
        return self._turns.count

    @property
    def wrong(self) -> int:
        """How many wrong ones are remembered."""
        return len(self._wrong)

    async def are_right(self, header: str, peer: str = "") -> bool:
        """Whether an Authorization header holds a user's name and password. `peer` is the address it came from.

        Raises:
            TooMany: the check would have to wait too long.
        """
        found = _read_basic(header)
        if found is None:
            return False
        user, password = found
        digest = hmac.digest(self._key, b"%d %b%b" % (len(user), user.encode(), password), hashlib.sha256)
        known = self._known(user, digest)
        if known is not None:
            return known
        await self._turns.take(_network(peer))
        try:
            known = self._known(user, digest)
            return await self._check(user, password, digest) if known is None else known
        finally:
            self._turns.give_back()

    def _known(self, user: str, digest: bytes) -> bool | None:
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
        """Whether it matches, with the work of the costliest hash whatever this one costs: time tells no name."""
        assert self._bcrypt is not None  # noqa: S101 - for mypy
        matches: bool = self._bcrypt.checkpw(password, hashed)
        # 2^c + 2^c + 2^(c+1) + … + 2^(most-1) = 2^most
        for cost in range(_cost(hashed), self._most_work):
            self._bcrypt.checkpw(password, _NOBODY % cost)
        return matches


class _Turns:
    """One at a time, and the next from another group if one waits there."""

    def __init__(self, most: int) -> None:
        self.count = 0  # who has the turn, and who waits
        self._most = most
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    async def take(self, group: str) -> None:
        """Wait for the turn; give it back.

        Raises:
            TooMany: no place to wait, or another group's member took it.
        """
        if not self.count:
            self.count = 1
            return
        if self.count >= self._most:
            self._send_one_away(group)
        self.count += 1
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(group, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.give_back()  # cancelled in the moment that it was given the turn
            else:
                self._leave(group, turn)
            raise

    def give_back(self) -> None:
        """The turn is the next one's."""
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
            self.count -= 1  # it was cancelled, and has not been told so yet

    def _send_one_away(self, newcomers_group: str) -> None:
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
    """Whose crowd an address belongs to: of IPv6 one host has a network of its own."""
    try:
        address = ip_address(peer.partition("%")[0])
    except ValueError:
        return peer
    if isinstance(address, IPv6Address) and address.ipv4_mapped is None:
        return str(int(address) >> (address.max_prefixlen - _IPV6_NETWORK_BITS))
    return peer


def _read_basic(header: str) -> tuple[str, bytes] | None:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(text.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:
        return None
