"""The maps of a loaded BPF object, and its ring buffers, as bytes. See libbpf.py."""

import ctypes
import os
from collections.abc import Iterator
from errno import ENOENT, ENOSPC
from typing import Any

# entries that one system call reads of a map; a hash table gives whole buckets, and asks for more room where it must
_AT_ONCE = 256
SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class BpfError(Exception):
    """A call of libbpf failed. `doing` says which; `number` is its errno, `printed` what libbpf printed last."""

    def __init__(self, doing: str, number: int, printed: str = "") -> None:
        super().__init__(f"{doing}: {os.strerror(number)}")
        self.doing = doing
        self.number = number
        self.printed = printed


class Map:
    """A map of a loaded object. Keys and values are bytes, as the C structs have them."""

    def __init__(self, library: ctypes.CDLL, pointer: int) -> None:
        self._library = library
        self._fd: int = library.bpf_map__fd(pointer)
        self._key_bytes: int = library.bpf_map__key_size(pointer)
        self._value_bytes: int = library.bpf_map__value_size(pointer)
        self.most: int = library.bpf_map__max_entries(pointer)
        self._room(_AT_ONCE)

    def _room(self, entries: int) -> None:
        self._at_once = min(entries, self.most)
        self._keys = ctypes.create_string_buffer(self._key_bytes * self._at_once)
        self._values = ctypes.create_string_buffer(self._value_bytes * self._at_once)

    def batches(self) -> Iterator[tuple[int, bytes, bytes]]:
        """All entries, some at a time: how many, their keys one after another, their values one after another.

        An entry that comes or goes meanwhile may be missing.

        Raises:
            BpfError: the map cannot be read.
        """
        batch = ctypes.create_string_buffer(max(self._key_bytes, 4))
        first: Any = None
        while True:
            count = ctypes.c_uint32(self._at_once)
            answer = self._library.bpf_map_lookup_batch(
                self._fd, first, batch, self._keys, self._values, ctypes.byref(count), None
            )
            number = ctypes.get_errno() if answer else 0
            if number == ENOSPC and self._at_once < self.most:
                self._room(self._at_once * 4)
                continue
            if number not in (0, ENOENT):
                raise BpfError("reading a map", number)
            if count.value:
                # slices of what was written: `raw` would copy the whole buffer
                keys = ctypes.string_at(self._keys, self._key_bytes * count.value)
                yield count.value, keys, ctypes.string_at(self._values, self._value_bytes * count.value)
            if number == ENOENT:
                return
            first = batch

    def size(self) -> int:
        """How many entries it has.

        Raises:
            BpfError: the map cannot be read.
        """
        return sum(count for count, _, _ in self.batches())

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        value = ctypes.create_string_buffer(self._value_bytes)
        answer = self._library.bpf_map_lookup_elem(self._fd, key, value)
        return None if answer else value.raw

    def delete(self, key: bytes) -> None:
        """Take an entry out, if it is there."""
        self._library.bpf_map_delete_elem(self._fd, key)


class Ring:
    """A ring buffer. Records stay in it until somebody drains it: nothing waits for them."""

    def __init__(self, library: ctypes.CDLL, fd: int) -> None:
        self._records: list[bytes] = []
        self._library = library
        self._callback = SAMPLE(self._add)
        self._pointer: int | None = library.ring_buffer__new(fd, self._callback, None, None)
        if not self._pointer:
            raise BpfError("mapping a ring buffer", ctypes.get_errno())

    def _add(self, _: int, data: int, size: int) -> int:
        self._records.append(ctypes.string_at(data, size))
        return 0

    def drain(self) -> list[bytes]:
        """The records since the last time."""
        self._library.ring_buffer__consume(self._pointer)
        records, self._records = self._records, []
        return records

    def close(self) -> None:
        """Unmap it."""
        pointer, self._pointer = self._pointer, None
        if pointer:
            self._library.ring_buffer__free(pointer)
