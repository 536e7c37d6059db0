"""Ids that look like before: a UUID stays a UUID, a serial keeps its digits, an address stays an address.

A character is replaced by another one of its alphabet, which depends on all characters before it and on a secret. So
two ids that begin alike still do, a shortened id is the beginning of the whole one's replacement, and no two ids become
one. Where known ids part, their next characters stay in order: what is sorted by ids stays sorted.

Tests: tests/bundle/names/test_random_worlds.py.
"""

import re
from collections import defaultdict
from functools import lru_cache
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address, ip_address

HEX = "0123456789abcdef"
DIGITS = "0123456789"
# those of the ending that an API server appends to a generateName
GENERATED = "bcdfghjklmnpqrstvwxz2456789"
_ANY = "0123456789abcdefghijklmnopqrstuvwxyz"
# benchmarks' own addresses (RFC 2544) and documentation's (RFC 3849): nobody's machine has them
_FIRST_V4 = int(IPv4Address("198.18.0.0"))
_FIRST_V6 = int(IPv6Address("2001:db8::"))
_MOST_BEFORE = 128  # characters on which the next one depends; ids have fewer
_OWN_V4 = re.compile(r"198\.1[89]\.\d{1,3}\.\d{1,3}")


class Disguise:
    """Replaces ids by a secret. The same secret makes the same replacements."""

    def __init__(self, secret: bytes) -> None:
        """`secret` has at most 64 bytes."""
        self._secret = secret
        self._addresses: dict[str, str] = {}
        self._known_ids: set[str] = set()
        self._next_of: dict[str, str] = {}
        self._is_settled = False
        self.alike = lru_cache(maxsize=100_000)(self._alike)

    def settle(self) -> None:
        """Learn no more ids. From now on the replacements are the final ones."""
        next_of: defaultdict[str, set[str]] = defaultdict(set)
        for digits in self._known_ids:
            for place, digit in enumerate(digits):
                next_of[digits[:place]].add(digit)
        self._next_of = {start: "".join(sorted(of_start)) for start, of_start in next_of.items() if len(of_start) > 1}
        self._is_settled = True
        self.alike.cache_clear()

    def id(self, text: str) -> str:
        """An id of hexadecimal digits; all other characters stay."""
        if not self._is_settled and len(text) <= _MOST_BEFORE:
            self._known_ids.add("".join(char for char in text.lower() if char in HEX))
        return self.alike(text, HEX)

    def serial(self, text: str) -> str:
        """A serial number: digits stay digits."""
        return self.alike(text, DIGITS if text.isascii() and text.isdigit() else _ANY)

    def generated(self, text: str) -> str:
        """The ending of a generated name."""
        return self.alike(text, GENERATED)

    def address(self, text: str) -> str:
        """An IP address. Loopback, and "any address", stay. Raises ValueError: it is no IP address."""
        address = ip_address(text)
        if address.is_loopback or address.is_unspecified or _OWN_V4.fullmatch(text):
            return text
        if str(address) not in self._addresses:
            number = len(self._addresses) + 1
            is_v4 = isinstance(address, IPv4Address)
            new = IPv4Address(_FIRST_V4 + number) if is_v4 else IPv6Address(_FIRST_V6 + number)
            self._addresses[str(address)] = str(new)
        return self._addresses[str(address)]

    def _alike(self, text: str, alphabet: str) -> str:
        """The text with each character of `alphabet` replaced. Capitals alone stay capitals."""
        before = ""
        new = []
        for char in text.lower():
            if char not in alphabet:
                new.append(char)
                continue
            in_order = self._in_order(before, char) if alphabet == HEX else ""
            new.append(in_order or self._shifted(before, char, alphabet))
            before = (before + char)[-_MOST_BEFORE:]
        replaced = "".join(new)
        return replaced.upper() if text.isupper() else replaced

    def _in_order(self, before: str, digit: str) -> str:
        """The new digit at a place where known ids part; "" at any other place."""
        digits = self._next_of.get(before, "")
        place = digits.find(digit)
        if place < 0:
            return ""
        drawn = sorted(HEX, key=lambda other: self._number(before + other))[: len(digits)]
        return sorted(drawn)[place]

    def _shifted(self, before: str, char: str, alphabet: str) -> str:
        """Another character of the alphabet; never the same."""
        shift = 1 + self._number(before) % (len(alphabet) - 1)
        return alphabet[(alphabet.index(char) + shift) % len(alphabet)]

    def _number(self, text: str) -> int:
        """A number that nobody knows without the secret."""
        return int.from_bytes(blake2b(text.encode(), key=self._secret, digest_size=4).digest())
