import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exporter.probe import elf
from exporter.probe.elf import BadElf, function_offsets, variable_address
from exporter.probe.process_files import read_maps
from tests.cuda import hostile
from tests.probe.elves import MAIN, SOURCE, compiled, opened
from tests.support.components import real

WANTED = frozenset({"cudaLaunchKernel", "cudaMalloc", "cudaFree", "cudaMemcpy", "cudaEventQuery"})


def functions(file: Path, wanted: frozenset[str] = WANTED) -> Mapping[str, tuple[int, ...]]:
    with opened(file) as descriptor:
        return function_offsets(descriptor, wanted)


def reason(content: bytes, machine: str = "x86_64") -> str:
    """Why nothing is found in a file of these bytes, which nothing may be found in."""
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        with pytest.raises(BadElf) as raised:
            function_offsets(file.fileno(), WANTED, machine)
    return raised.value.reason


def disassembled(file: Path) -> dict[str, int]:
    """Where the functions are, as binutils has it: the addresses of symbols minus those of the segments with code."""
    shown = subprocess.run([real("objdump"), "-h", "-t", file], capture_output=True, check=True, timeout=30).stdout
    lines = [row.split() for row in shown.decode().splitlines()]
    (text,) = (row for row in lines if row[1:2] == [".text"] and len(row) == 7)
    shift = int(text[5], 16) - int(text[3], 16)
    return {row[-1]: int(row[0], 16) + shift for row in lines if ".text" in row and row[-1] in WANTED}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("elf") / "libcudart.so.1", SOURCE, "-shared", "-fPIC")


@pytest.mark.real
@pytest.mark.parametrize("options", [(), ("-no-pie",), ("-static",), ("-static-pie",)], ids=str)
def test_a_program_with_the_runtime_linked_in(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = compiled(tmp_path / "a.out", SOURCE + MAIN, *options)
    found = functions(program)
    assert set(found) == {"cudaLaunchKernel", "cudaMalloc", "cudaMemcpy"}
    assert {name: (offset,) for name, offset in disassembled(program).items()} == found


@pytest.mark.real
def test_a_library_stripped_or_not(library: Path, tmp_path: Path) -> None:
    found = functions(library)
    assert {name: (offset,) for name, offset in disassembled(library).items()} == found
    assert set(found) == {"cudaLaunchKernel", "cudaMalloc", "cudaMemcpy"}
    stripped = tmp_path / "stripped.so"
    subprocess.run([real("strip"), "-o", stripped, library], check=True, timeout=30)
    assert functions(stripped) == {name: found[name] for name in ("cudaLaunchKernel", "cudaMalloc")}


@pytest.mark.real
def test_what_a_library_only_asks_for_and_a_stripped_program_do_not_count(library: Path, tmp_path: Path) -> None:
    asks = compiled(tmp_path / "asks", MAIN, str(library), "-no-pie")
    bare = compiled(tmp_path / "bare", SOURCE + MAIN, "-s")
    for program in (asks, bare):
        with pytest.raises(BadElf, match="no_functions"):
            functions(program)


@pytest.mark.real
def test_each_version_of_a_function_counts(tmp_path: Path) -> None:
    versions = tmp_path / "versions"
    versions.write_text("OLD { global: cudaMalloc; local: *; }; NEW { global: cudaMalloc; } OLD;")
    source = """
    int old(void) { return 1; } int new(void) { return 2; }
    __asm__(".symver old, cudaMalloc@OLD"); __asm__(".symver new, cudaMalloc@@NEW");
    """
    made = compiled(tmp_path / "l.so", source, "-shared", "-fPIC", f"-Wl,--version-script={versions}", "-s")
    (offsets,) = functions(made).values()
    assert len(offsets) == 2


@pytest.mark.real
def test_an_indirect_function_and_one_that_is_data_do_not_count(tmp_path: Path) -> None:
    source = """
    static int one(void) { return 1; } static void *choose(void) { return one; }
    int cudaMalloc(void) __attribute__((ifunc("choose"))); int cudaFree = 1;
    """
    with pytest.raises(BadElf, match="no_functions"):
        functions(compiled(tmp_path / "l.so", source, "-shared", "-fPIC"))


@pytest.mark.real
def test_segments_that_do_not_stand_at_their_addresses(tmp_path: Path) -> None:
    made = compiled(
        tmp_path / "l.so", SOURCE, "-shared", "-fPIC", "-Wl,-Ttext-segment=0x7654000", "-Wl,-z,separate-code"
    )
    assert {name: (offset,) for name, offset in disassembled(made).items()} == functions(made)
    (code,) = (s for s in segments(made.read_bytes()) if s.flags & 1)
    assert code.address != code.offset


class Segment:
    def __init__(self, at: int, content: bytes) -> None:
        _, self.flags, self.offset, self.address, *_ = struct.unpack_from("<IIQQQQQQ", content, at)


def segments(content: bytes) -> list[Segment]:
    (at,), (count,) = struct.unpack_from("<Q", content, 32), struct.unpack_from("<H", content, 56)
    return [Segment(at + 56 * number, content) for number in range(count)]


@pytest.mark.real
def test_names_across_the_border_of_two_pieces(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = functions(library)
    for symbols in (1, 2, 3, 5):
        monkeypatch.setattr(elf, "_PIECE_BYTES", 24 * symbols)
        assert functions(library) == found


@pytest.mark.real
def test_a_name_that_ends_another_one_is_found_within_it(tmp_path: Path) -> None:
    # the linker keeps one string for both
    made = compiled(tmp_path / "l.so", "int xa(void) { return 1; } int a(void) { return 2; }", "-shared", "-s", "-O2")
    assert len(functions(made, frozenset({"a"}))["a"]) == 1
    assert set(functions(made, frozenset({"a", "xa"}))) == {"a", "xa"}


def test_the_libc_of_this_python() -> None:
    (libc,) = (f for f in read_maps(Path("/proc/self/maps").read_text()) if f.role == "libc")
    assert len(functions(Path(libc.path), frozenset({"setenv"}))["setenv"]) == 1


@pytest.mark.real
@pytest.mark.parametrize("options", [("-pie",), ("-no-pie",), ("-static",)], ids=str)
def test_a_variable_is_where_the_program_says(tmp_path: Path, options: tuple[str, ...]) -> None:
    source = """
    #include <stdio.h>
    #include <unistd.h>
    int far_away[100000] = {1}, wanted = 7;
    int main(void) { printf("%lu\\n", (unsigned long)&wanted); fflush(stdout); return getchar() == 0; }
    """
    program = compiled(tmp_path / "a.out", source, *options)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as running, opened(program) as file:
        assert running.stdout
        said = int(running.stdout.readline())
        (mapped,) = (
            f for f in read_maps(Path(f"/proc/{running.pid}/maps").read_text(), str(program)) if f.role == "program"
        )
        distance = variable_address(file, {"wanted"}, mapped.offset)
        assert distance is not None
        assert mapped.start + distance == said
        assert variable_address(file, {"missing"}, mapped.offset) is None
        with pytest.raises(BadElf, match="damaged"):
            variable_address(file, {"wanted"}, 1 << 40)
        running.communicate(b"\n")


def test_a_mapping_begins_at_the_page_in_which_its_segment_begins() -> None:
    content = made(segment=(1, 5, 0x1234, 0x40_1234, 0, 0x100, 0x100, 0), symbol=(1, 0x11, 0, 1, 0x40_2000, 0))
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        assert variable_address(file.fileno(), {"cudaMalloc"}, 0x1000, "x86_64") == 0x1000
        with pytest.raises(BadElf, match="damaged"):
            variable_address(file.fileno(), {"cudaMalloc"}, 0x1334, "x86_64")


HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
SEGMENT = struct.Struct("<IIQQQQQQ")
SYMBOL = struct.Struct("<IBBHQQ")


def made(
    *,
    identity: bytes = b"\x7fELF\x02\x01\x01",
    kind: int = 3,
    machine: int = 62,
    segment: tuple[int, ...] = (1, 5, 0, 0x1000, 0, 0x1000, 0x1000, 0),
    segment_size: int = 56,
    segment_count: int = 1,
    symbol: tuple[int, ...] = (1, 0x12, 0, 1, 0x1010, 0),
    symbols: int = 1,
    names: bytes = b"\0cudaMalloc\0",
    link: int = 1,
    strings: int = 3,
    entry: int = 24,
    table_size: int | None = None,
    names_size: int | None = None,
    section_size: int = 64,
    section_count: int = 2,
    sections_at: int = 120,
) -> bytes:
    """A file of header, segment, sections, symbols and names, in which cudaMalloc is at 0x10, unless told otherwise."""
    table = b"".join(SYMBOL.pack(*symbol[:4], symbol[4] + number, symbol[5]) for number in range(symbols))
    at = 64 + 56 + 2 * 64
    header = HEADER.pack(
        identity,
        kind,
        machine,
        1,
        0,
        64,
        sections_at,
        0,
        64,
        segment_size,
        segment_count,
        section_size,
        section_count,
        0,
    )
    of_symbols = SECTION.pack(0, 11, 0, 0, at, len(table) if table_size is None else table_size, link, 0, 8, entry)
    of_names = SECTION.pack(
        0, strings, 0, 0, at + len(table), len(names) if names_size is None else names_size, 0, 0, 1, 0
    )
    return header + SEGMENT.pack(*segment) + of_symbols + of_names + table + names


def offsets(content: bytes, machine: str = "x86_64") -> Mapping[str, tuple[int, ...]]:
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        return function_offsets(file.fileno(), WANTED, machine)


def test_the_file_that_the_next_tests_damage_is_whole() -> None:
    assert offsets(made()) == {"cudaMalloc": (0x10,)}
    assert offsets(made(kind=2)) == {"cudaMalloc": (0x10,)}
    assert offsets(made(machine=183), "aarch64") == {"cudaMalloc": (0x10,)}
    assert offsets(made(symbols=elf.MOST_VERSIONS)) == {"cudaMalloc": tuple(range(0x10, 0x10 + elf.MOST_VERSIONS))}


def many_segments(segments: int, symbols: int = 1) -> bytes:
    """An ELF file of so many segments with code, none of which has a symbol's place."""
    return hostile.elf([("cudaMalloc", 0)] * symbols, [(0, 1 << 20, 4096)] * segments)


# issue 15, line 12
def test_a_file_may_have_so_many_places_and_no_more(tmp_path: Path) -> None:
    most = hostile.library_of(tmp_path / "most", places=elf.MOST_PROBED)
    assert sum(map(len, functions(most, hostile.NAMES).values())) == elf.MOST_PROBED
    with pytest.raises(BadElf, match="too_many_places"):
        functions(hostile.library_of(tmp_path / "more", places=elf.MOST_PROBED + 1), hostile.NAMES)
    assert reason(many_segments(elf.MOST_CODE_SEGMENTS)) == "no_functions"


# issue 15, line 12
def test_a_file_is_searched_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pieces: list[int] = []
    monkeypatch.setattr(elf, "_PIECE_BYTES", 24 * 100)
    monkeypatch.setattr(elf, "MOST_SECONDS", 10.0)
    monkeypatch.setattr(time, "thread_time", lambda: pieces.append(1) or len(pieces))  # type: ignore[func-returns-value]
    assert reason(many_segments(1, symbols=10_000)) == "too_slow"
    assert len(pieces) == 12  # when it began, ten pieces, and the one that is too late


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not_elf"),
        (b"\x7fELF", "not_elf"),
        (b"#!/bin/sh\n" * 100, "not_elf"),
        (made(kind=1), "not_elf"),
        (made(kind=4), "not_elf"),
        (made(identity=b"\x7fELF\x01\x01"), "other_architecture"),
        (made(identity=b"\x7fELF\x02\x02"), "other_architecture"),
        (made(machine=183), "other_architecture"),
        (made(machine=3), "other_architecture"),
        (made(segment_count=elf.MOST_SEGMENTS + 1), "too_large"),
        (made(segment_count=elf.MOST_SEGMENTS), "damaged"),
        (many_segments(elf.MOST_CODE_SEGMENTS + 1), "too_large"),
        (made(segment_size=32), "damaged"),
        (made(section_size=40), "damaged"),
        (made(sections_at=2**64 - 1), "damaged"),
        (made(section_count=65_535), "damaged"),
        (made(section_count=0), "no_functions"),
        (made(link=2), "damaged"),
        (made(link=0), "damaged"),
        (made(strings=1), "damaged"),
        (made(entry=0), "damaged"),
        (made(entry=16), "damaged"),
        (made(table_size=2**64 - 1), "too_large"),
        (made(names_size=elf.MOST_TABLE_BYTES), "too_large"),
        (made(names_size=elf.MOST_TABLE_BYTES - 24), "damaged"),
        (made(table_size=elf.MOST_TABLE_BYTES // 2), "damaged"),
        (made(symbol=(1, 0x1A, 0, 1, 0x1010, 0)), "no_functions"),  # indirect
        (made(symbol=(1, 0x11, 0, 1, 0x1010, 0)), "no_functions"),  # data
        (made(symbol=(1, 0x12, 0, 0, 0x1010, 0)), "no_functions"),  # not here
        (made(symbol=(2, 0x12, 0, 1, 0x1010, 0)), "no_functions"),  # another name
        (made(symbol=(1, 0x12, 0, 1, 0x0FFF, 0)), "no_functions"),
        (made(symbol=(1, 0x12, 0, 1, 0x2000, 0)), "no_functions"),
        (made(symbol=(1, 0x12, 0, 1, 0x1F00, 0)), "no_functions"),  # in the segment, past the end of the file
        (made(segment=(1, 6, 0, 0x1000, 0, 0x1000, 0x1000, 0)), "no_functions"),  # no code
        (made(segment=(2, 5, 0, 0x1000, 0, 0x1000, 0x1000, 0)), "no_functions"),  # not loaded
        (made(segment=(1, 5, 2**64 - 1, 0x1000, 0, 2**64 - 1, 0x1000, 0)), "no_functions"),
        (made(names=b"\0cudaMallo\0"), "no_functions"),
        (made(names=b"\0cudaMalloc"), "no_functions"),  # no end
        (made(symbols=elf.MOST_VERSIONS + 1), "damaged"),
        (made(names=b"\0cudaMalloc\0" * (elf.MOST_PLACES + 1)), "damaged"),
    ],
)
def test_why_nothing_is_found(content: bytes, why: str) -> None:
    assert reason(content) == why


@given(st.binary(max_size=4096), st.booleans())
def test_any_bytes(content: bytes, with_header: bool) -> None:
    with tempfile.TemporaryFile() as file:
        file.write((made()[:64] if with_header else b"") + content)
        file.flush()
        with suppress(BadElf):
            assert function_offsets(file.fileno(), WANTED, "x86_64")


@pytest.mark.real
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_damaged_file(library: Path, data: st.DataObject) -> None:
    """Bytes where the file says what is where are changed: the one exception or offsets within the file."""
    content = bytearray(library.read_bytes())
    (sections,), (count,) = struct.unpack_from("<Q", content, 40), struct.unpack_from("<H", content, 60)
    heads = [*range(64 + 56 * 12), *range(sections, sections + 64 * count)]
    for at in data.draw(st.lists(st.sampled_from(heads), min_size=1, max_size=8)):
        content[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content))) :]
    with tempfile.TemporaryFile() as file:
        file.write(content)
        file.flush()
        try:
            found = function_offsets(file.fileno(), WANTED)
        except BadElf:
            return
        assert all(0 <= offset < len(content) for offsets in found.values() for offset in offsets)
        variable = None
        try:
            variable = variable_address(file.fileno(), {"cudaEventQuery"}, 0x1000)
        except BadElf:
            return
        assert variable is None or isinstance(variable, int)


def test_the_largest_tables_take_no_long_time() -> None:
    """A sparse file whose tables are as large as is allowed, all symbols of which have a wanted name."""
    size = elf.MOST_TABLE_BYTES // 2 // 24 * 24
    content = made(table_size=size, names=b"")
    at = 64 + 56 + 2 * 64
    with tempfile.TemporaryFile() as file:
        file.write(content[: 64 + 56 + 64])
        file.write(SECTION.pack(0, 3, 0, 0, at + size, elf.MOST_TABLE_BYTES - size, 0, 0, 1, 0))
        file.seek(at + size)
        file.write(b"cudaMalloc\0")
        file.truncate(at + size + elf.MOST_TABLE_BYTES)
        began = time.process_time()
        # a busy machine may need longer for them than a file may take
        with pytest.raises(BadElf, match=r"no_functions|too_slow"):
            function_offsets(file.fileno(), WANTED, "x86_64")
        assert time.process_time() - began < 5


def test_a_file_that_shrinks_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile() as file:
        file.write(made())
        file.flush()
        real_pread = os.pread
        monkeypatch.setattr(os, "pread", lambda *a: real_pread(*a)[:-1] if a[1] == 56 else real_pread(*a))
        with pytest.raises(BadElf, match="damaged"):
            function_offsets(file.fileno(), WANTED, "x86_64")


@pytest.mark.skipif(sys.byteorder != "little", reason="the files are little-endian")
def test_the_machine_is_this_one_unless_given() -> None:
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    with tempfile.TemporaryFile() as file:
        file.write(made(machine=machine))
        file.flush()
        assert function_offsets(file.fileno(), WANTED) == {"cudaMalloc": (0x10,)}
