"""libbpf.so.1 by ctypes: it loads a BPF object, attaches its programs, and reads its maps and ring buffers as bytes.

It has only the parts that the probe needs. Only links may be closed by several threads at once. On an
error libbpf returns NULL or a negative number, with the reason in errno. Its printed text is kept for messages.

Tests: tests/probe/test_loading.py.
"""

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from errno import ENOENT, ENOSPC
from pathlib import Path
from typing import Any, Literal

from exporter.wording import one_line

# the entries that a system call reads of a map; a hash table returns whole buckets, and may ask for more room
_AT_ONCE = 256
_SAMPLE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class BpfError(Exception):
    """A call of libbpf failed, while `doing` something. `number` is its errno, `printed` libbpf's last printed text."""

    def __init__(self, doing: str, number: int, printed: str = "") -> None:
        super().__init__(f"{doing}: {os.strerror(number)}")
        self.number = number
        self.printed = printed


class Map:
    """A map of a loaded object. Keys and values are the bytes of C structs."""

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
        """The entries in parts: count, keys, values. Entries that change meanwhile may be missing.

        Raises BpfError: the kernel refuses it.
        """
        read_batch = self._library.bpf_map_lookup_batch
        batch = ctypes.create_string_buffer(max(self._key_bytes, 4))
        first: Any = None
        while True:
            count = ctypes.c_uint32(self._at_once)
            answer = read_batch(self._fd, first, batch, self._keys, self._values, ctypes.byref(count), None)
            number = ctypes.get_errno() if answer else 0
            if number == ENOSPC and self._at_once < self.most:
                self._room(self._at_once * 4)
                continue
            if number not in (0, ENOENT):
                raise BpfError("reading a map", number)
            if count.value:
                # only the written bytes: `raw` would copy the whole buffer
                keys = ctypes.string_at(self._keys, self._key_bytes * count.value)
                yield count.value, keys, ctypes.string_at(self._values, self._value_bytes * count.value)
            if number == ENOENT:
                return
            first = batch

    def get(self, key: bytes) -> bytes | None:
        """The value of a key; None if it is not there."""
        value = ctypes.create_string_buffer(self._value_bytes)
        return None if self._library.bpf_map_lookup_elem(self._fd, key, value) else value.raw

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it is there."""
        self._library.bpf_map_delete_elem(self._fd, key)


class Ring:
    """A ring buffer. Records stay in it until `drain`."""

    def __init__(self, library: ctypes.CDLL, fd: int) -> None:
        self._records: list[bytes] = []
        self._library = library
        self._callback = _SAMPLE(self._add)
        self._pointer: int | None = library.ring_buffer__new(fd, self._callback, None, None)
        if not self._pointer:
            raise BpfError("mapping a ring buffer", ctypes.get_errno())

    def _add(self, _: int, data: int, size: int) -> int:
        self._records.append(ctypes.string_at(data, size))
        return 0

    def drain(self) -> list[bytes]:
        """The records since the last call."""
        self._library.ring_buffer__consume(self._pointer)
        records = self._records
        self._records = []
        return records

    def close(self) -> None:
        """Unmap the buffer."""
        pointer = self._pointer
        self._pointer = None
        if pointer:
            self._library.ring_buffer__free(pointer)


NAME = "libbpf.so.1"
_MOST_MESSAGES = 20
_MESSAGE_BYTES = 1024
_WARNING = 0
_CLOSING = 16  # threads
# linux/bpf.h
_LINK_CREATE = 28
_UPROBE_MULTI = 48
_AT_RETURN = 1
_BPF = {"x86_64": 321, "aarch64": 280}.get(os.uname().machine, 0)

_PRINT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_POINTER = ctypes.c_void_p
_INT = ctypes.c_int
_TEXT = ctypes.c_char_p
_SIGNATURES: dict[str, tuple[Any, list[Any]]] = {
    "libbpf_set_print": (_POINTER, [_PRINT]),
    "bpf_object__open_file": (_POINTER, [_TEXT, _POINTER]),
    "bpf_object__load": (_INT, [_POINTER]),
    "bpf_object__close": (None, [_POINTER]),
    "bpf_object__find_program_by_name": (_POINTER, [_POINTER, _TEXT]),
    "bpf_object__find_map_by_name": (_POINTER, [_POINTER, _TEXT]),
    "bpf_program__attach_uprobe_opts": (_POINTER, [_POINTER, _INT, _TEXT, ctypes.c_size_t, _POINTER]),
    "bpf_program__set_expected_attach_type": (_INT, [_POINTER, _INT]),
    "bpf_program__fd": (_INT, [_POINTER]),
    "bpf_program__attach": (_POINTER, [_POINTER]),
    "bpf_link__destroy": (_INT, [_POINTER]),
    "bpf_map__fd": (_INT, [_POINTER]),
    "bpf_map__key_size": (ctypes.c_uint32, [_POINTER]),
    "bpf_map__value_size": (ctypes.c_uint32, [_POINTER]),
    "bpf_map__max_entries": (ctypes.c_uint32, [_POINTER]),
    "bpf_map__set_max_entries": (_INT, [_POINTER, ctypes.c_uint32]),
    "bpf_map_lookup_batch": (_INT, [_INT, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER, _POINTER]),
    "bpf_map_lookup_elem": (_INT, [_INT, _POINTER, _POINTER]),
    "bpf_map_delete_elem": (_INT, [_INT, _POINTER]),
    "ring_buffer__new": (_POINTER, [_INT, _SAMPLE, _POINTER, _POINTER]),
    "ring_buffer__consume": (_INT, [_POINTER]),
    "ring_buffer__free": (None, [_POINTER]),
}


class _UprobeMulti(ctypes.Structure):
    """`union bpf_attr` of linux/bpf.h for BPF_LINK_CREATE of uprobes: Linux 6.6 has them, libbpf 1.0 does not."""

    _fields_ = (
        ("program_fd", ctypes.c_uint32),
        ("target_fd", ctypes.c_uint32),
        ("attach_type", ctypes.c_uint32),
        ("link_flags", ctypes.c_uint32),
        ("path", ctypes.c_uint64),
        ("offsets", ctypes.c_uint64),
        ("reference_counts", ctypes.c_uint64),
        ("cookies", ctypes.c_uint64),
        ("count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
    )


class _UprobeOptions(ctypes.Structure):
    """`struct bpf_uprobe_opts` of libbpf 1.0."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("reference_count", ctypes.c_size_t),
        ("cookie", ctypes.c_uint64),
        ("at_return", ctypes.c_bool),
        ("function", ctypes.c_char_p),
    )


class Link:
    """A program that is attached to a place, or to many places. When this process ends, the kernel detaches it."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = [close]

    def close(self) -> None:
        """Detach the program, which takes the kernel up to a tenth of a second. Of several threads only one acts."""
        with suppress(IndexError):
            close = self._close.pop()
            close()


def close_all(links: Iterable[Link]) -> None:
    """Close links on several threads: the kernel mostly waits, and can wait for several at once."""
    left = deque(links)

    def work() -> None:
        with suppress(IndexError):
            while True:
                left.popleft().close()

    threads = [threading.Thread(target=work, name="detach", daemon=True) for _ in range(min(_CLOSING, len(left)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Object:
    """A BPF object: its programs and maps, loaded into the kernel."""

    def __init__(self, path: Path, most: Mapping[str, int], uprobes: Sequence[str], *, at_once: bool) -> None:
        """Load an object.

        Args:
            path: the object's file.
            most: other limits of the object's maps, by name: entries, or bytes of a ring.
            uprobes: the programs for places in files.
            at_once: one call attaches a program to many places, from Linux 6.6 on. Without it the kernel takes a tenth
                of a second to detach each place.

        Raises:
            OSError: there is no libbpf.so.1.
            BpfError: the object cannot be opened, or the kernel refuses it.
        """
        self.messages: list[str] = []
        self.at_once = at_once
        self._pointer: int | None = None
        self._library = library = _library()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._print = _PRINT(self._keep)
        library.libbpf_set_print(self._print)
        try:
            self._load(path, most, uprobes)
        finally:
            # libbpf has one such function for the whole process, and this function ends with the object
            library.libbpf_set_print(_PRINT())

    def _load(self, path: Path, most: Mapping[str, int], uprobes: Sequence[str]) -> None:
        library = self._library
        self._pointer = library.bpf_object__open_file(os.fsencode(path), None)
        if not self._pointer:
            raise BpfError(f"opening {path}", ctypes.get_errno())
        for name in uprobes if self.at_once else ():
            library.bpf_program__set_expected_attach_type(self._by_name("program", name), _UPROBE_MULTI)
        for name, entries in most.items():
            library.bpf_map__set_max_entries(self._by_name("map", name), entries)
        if library.bpf_object__load(self._pointer):
            number = ctypes.get_errno()
            self.close()
            raise BpfError("loading the program into the kernel", number, " ".join(self.messages[:1]))

    def _keep(self, level: int, text: bytes | None, arguments: int | None) -> int:
        # both x86-64's ABI and AArch64's pass a va_list as a pointer
        if text and level == _WARNING and len(self.messages) < _MOST_MESSAGES:
            room = ctypes.create_string_buffer(_MESSAGE_BYTES)
            self._libc.vsnprintf(room, _MESSAGE_BYTES, ctypes.c_char_p(text), ctypes.c_void_p(arguments))
            printed = room.value.decode("utf-8", "replace")
            self.messages.append(one_line(printed.removeprefix("libbpf: ")))
        return 0

    def map(self, name: str) -> Map:
        """The map of this name."""
        return Map(self._library, self._by_name("map", name))

    def ring(self, name: str) -> Ring:
        """The ring buffer of this name."""
        return Ring(self._library, self._library.bpf_map__fd(self._by_name("map", name)))

    def attach_uprobes(
        self, program: str, path: str, places: Sequence[tuple[int, int]], *, at_return: bool = False
    ) -> list[Link]:
        """Attach a program to `places` (offset, cookie) of a file, or to returns from there.

        Raises BpfError: the kernel refuses a place. Then the program is attached to none.
        """
        if self.at_once:
            return [self._attach_at_once(program, path, places, at_return=at_return)]
        links: list[Link] = []
        try:
            links.extend(self._attach_one(program, path, *place, at_return=at_return) for place in places)
        except BpfError:
            for link in links:
                link.close()
            raise
        return links

    def _attach_at_once(self, program: str, path: str, places: Sequence[tuple[int, int]], *, at_return: bool) -> Link:
        """One link for all places, as Linux 6.6 and later can make it. Raises BpfError: the kernel refuses."""
        offsets = (ctypes.c_uint64 * len(places))(*(offset for offset, _ in places))
        cookies = (ctypes.c_uint64 * len(places))(*(cookie for _, cookie in places))
        file = ctypes.c_char_p(os.fsencode(path))
        attributes = _UprobeMulti(
            program_fd=self._library.bpf_program__fd(self._by_name("program", program)),
            attach_type=_UPROBE_MULTI,
            path=ctypes.cast(file, ctypes.c_void_p).value,
            offsets=ctypes.addressof(offsets),
            cookies=ctypes.addressof(cookies),
            count=len(places),
            flags=_AT_RETURN if at_return else 0,
        )
        fd: int = self._libc.syscall(_BPF, _LINK_CREATE, ctypes.byref(attributes), ctypes.sizeof(attributes))
        if fd < 0:
            raise BpfError(f"attaching {program}", ctypes.get_errno())
        return Link(lambda: os.close(fd))

    def _attach_one(self, program: str, path: str, offset: int, cookie: int, *, at_return: bool) -> Link:
        options = _UprobeOptions(size=ctypes.sizeof(_UprobeOptions), cookie=cookie, at_return=at_return)
        attach = self._library.bpf_program__attach_uprobe_opts
        pointer = self._by_name("program", program)
        return self._link(attach(pointer, -1, os.fsencode(path), offset, ctypes.byref(options)), program)

    def attach(self, program: str) -> Link:
        """Attach a program to the place that its section in the object names. Raises BpfError: it is refused."""
        return self._link(self._library.bpf_program__attach(self._by_name("program", program)), program)

    def close(self) -> None:
        """Unload the object. Links keep their programs in the kernel until they are closed, too."""
        pointer = self._pointer
        self._pointer = None
        if pointer:
            self._library.bpf_object__close(pointer)

    def _by_name(self, kind: Literal["map", "program"], name: str) -> int:
        find = getattr(self._library, f"bpf_object__find_{kind}_by_name")
        pointer: int | None = find(self._pointer, name.encode())
        if not pointer:
            raise BpfError(f"finding the {kind} {name}", ctypes.get_errno())
        return pointer

    def _link(self, pointer: int | None, program: str) -> Link:
        if not pointer:
            raise BpfError(f"attaching {program}", ctypes.get_errno())
        return Link(lambda: self._library.bpf_link__destroy(pointer))


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(NAME, use_errno=True)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
