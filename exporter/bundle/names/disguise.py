"""Ids that look like before: a UUID stays a UUID, a serial keeps its digits, an address stays an address.

A character is replaced by another one of its alphabet, which depends on all characters before it and on a secret. So
two ids that begin alike still do, a shortened id is the beginning of the whole one's replacement, and no two ids become
one.
"""

import re
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
_OWN_V4 = re.compile(r"198\.1[89]\.\d{1,3}\.\d{1,3}")
_HEX_OR_SIGN = re.compile(r"[0-9a-fA-F_:.-]+")


class Disguise:
    """Replaces ids by a secret. The same secret makes the same replacements."""

    def __init__(self, secret: bytes) -> None:
        """`secret` has at most 64 bytes."""
        self._secret = secret
        self._addresses: dict[str, str] = {}
        self.alike = lru_cache(maxsize=100_000)(self._alike)

    def id(self, text: str) -> str:
        """An id of hexadecimal digits, or of any letters and digits; all other characters stay."""
        return self.alike(text, HEX if _HEX_OR_SIGN.fullmatch(text) else _ANY)

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
        lower = text.lower()
        size = len(alphabet)
        before = bytearray()
        new = []
        for char in lower:
            place = alphabet.find(char)
            if place < 0:
                new.append(char)
                continue
            # never by 0: no character stays
            shift = 1 + int.from_bytes(blake2b(bytes(before), key=self._secret, digest_size=4).digest()) % (size - 1)
            new.append(alphabet[(place + shift) % size])
            before += char.encode()
        replaced = "".join(new)
        return replaced.upper() if text.isupper() else replaced
