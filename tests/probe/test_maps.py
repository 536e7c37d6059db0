import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.probe.process_files import MARK, MOST_FILES, MappedFile, MappedRole, read_maps


def line(path: str, *, start: int = 0x7F00_0000_0000, rights: str = "r-xp", offset: int = 0, inode: int = 42) -> str:
    shown = path.replace("\n", "\\012")
    return f"{start:x}-{start + 0x1000:x} {rights} {offset:08x} fe:01 {inode}".ljust(73) + f"{shown}\n"


def roles(*paths: str) -> list[MappedRole]:
    return [file.role for file in read_maps("".join(line(path, inode=1 + n) for n, path in enumerate(paths)))]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("libcudart.so", "cudart"),
        ("libcudart.so.13", "cudart"),
        ("libcudart.so.11.8.89", "cudart"),
        ("libcudart-d0da41ae.so.11.0", "cudart"),
        ("libcudart.so.13\nx", "cudart"),
        ("libcudart_static.so", None),
        ("libcudart-x.so.11.0", None),
        ("libcudart.a", None),
        ("libcudart.software", None),
        ("xlibcudart.so.13", None),
        ("libcuda.so", "cuda"),
        ("libcuda.so.1", "cuda"),
        ("libcuda.so.580.65.06", "cuda"),
        ("libcudadebugger.so.1", None),
        ("libcudnn.so.9", None),
        ("libcuda.sox", None),
        ("libc.so.6", "libc"),
        ("libc.so", "libc"),
        ("libc-2.31.so", "libc"),
        ("ld-musl-x86_64.so.1", "libc"),
        ("ld-musl-aarch64.so.1", "libc"),
        ("libc.musl-x86_64.so.1", "libc"),
        ("libc-client.so.6", None),
        ("libcap.so.2", None),
        ("libcrypt.so.1", None),
        ("libc.so.6.bak", None),
        ("ld-linux-x86-64.so.2", None),
    ],
)
def test_the_name_of_a_file_says_its_role(name: str, role: MappedRole | None) -> None:
    assert roles(f"/usr/lib/{name}") == ([] if role is None else [role])


@pytest.mark.parametrize(
    ("shown", "path", "is_deleted"),
    [
        ("/l/libcuda.so.1 (deleted)", "/l/libcuda.so.1", True),
        (r"/a\012b/libcuda.so.1", "/a\nb/libcuda.so.1", False),
        (r"/a\012b/libcuda.so.1 (deleted)", "/a\nb/libcuda.so.1", True),
        ("/a (deleted)/libcuda.so.1", "/a (deleted)/libcuda.so.1", False),
        ("/a  b/ libcuda.so/libcuda.so.1", "/a  b/ libcuda.so/libcuda.so.1", False),
        ("/a\\\\x/libcuda.so.1", "/a\\\\x/libcuda.so.1", False),
        ("/a\x0b\x0c\x1c\x85\u2028\r/libcuda.so.1", "/a\x0b\x0c\x1c\x85\u2028\r/libcuda.so.1", False),
        ("/a\udcff/libcuda.so.1", "/a\udcff/libcuda.so.1", False),
        (
            "/var/lib/docker/overlay2/3f/merged/l/libcuda.so.1",
            "/var/lib/docker/overlay2/3f/merged/l/libcuda.so.1",
            False,
        ),
        ("/memfd:/libcuda.so.1 (deleted)", "/memfd:/libcuda.so.1", True),
    ],
)
def test_paths(shown: str, path: str, is_deleted: bool) -> None:
    (file,) = read_maps(line(shown))
    assert (file.path, file.is_deleted) == (path, is_deleted)


def test_a_file_is_told_by_its_first_executable_mapping() -> None:
    library = "/usr/lib/libcudart.so.13"
    text = (
        line("/usr/bin/python3", start=0x1000)
        + line(library, start=0x10000, rights="r--p")
        + line(library, start=0x20000, offset=0xE000)
        + line(library, start=0x40000, offset=0x5000)
        + line(library, start=0x50000, rights="rw-p")
        + "7ffe0000-7ffe1000 r-xp 00000000 00:00 0                          [vdso]\n"
        + "7ffe2000-7ffe3000 r-xp 00000000 00:00 0 \n"
    )
    assert read_maps(text) == (MappedFile(library, False, "fe:01", 42, 0x20000, 0xE000, "cudart", times=2),)


# issue 15, line 12
def test_how_often_a_file_is_mapped_is_counted_past_the_limit_of_files() -> None:
    others = "".join(line(f"/l/libcuda.so.{number}", inode=1 + number) for number in range(MOST_FILES + 3))
    assert [file.times for file in read_maps(others * 5)] == [5] * MOST_FILES


def test_two_copies_at_one_path_are_two_files() -> None:
    text = line("/l/libcuda.so.1", inode=1) + line("/l/libcuda.so.1", inode=2)
    assert [file.inode for file in read_maps(text)] == [1, 2]


@pytest.mark.parametrize("program", ["/app/x y", "/app/x\ny", "/app/x (deleted)", "/l/libcuda.so.1"])
def test_the_program_is_told_by_its_link(program: str) -> None:
    text = line("/l/libc.so.6", inode=1) + line(program, inode=2) + line("/app/other", inode=3)
    file = read_maps(text, program)[1]
    assert (file.role, file.inode) == ("program", 2)
    assert file.path == program.removesuffix(" (deleted)")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        line("/l/libcuda.so.1", rights="r--p"),
        line("/l/libcuda.so.1", inode=0),
        line("l/libcuda.so.1"),
        line("/l/libcuda.so.1").replace("fe:01", "fe"),
        line("/l/libcuda.so.1").replace("7f", "7g"),
        line("/l/libcuda.so.1")[:-1].replace(" ", "\t"),
        "/l/libcuda.so.1\n",
    ],
)
def test_what_is_no_executable_mapping_of_a_file_is_left_out(text: str) -> None:
    assert read_maps(text) == ()


def test_no_process_has_more_files_than_the_limit() -> None:
    text = "".join(line(f"/l/libcuda.so.{number}", inode=1 + number) for number in range(1000))
    assert [file.inode for file in read_maps(text)] == list(range(1, MOST_FILES + 1))


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert len(read_maps(text)) <= MOST_FILES


@given(st.lists(st.text(st.characters(exclude_characters="\0"), min_size=1), max_size=MOST_FILES))
def test_no_name_of_a_folder_hides_a_library_or_makes_one(names: list[str]) -> None:
    paths = [f"/{name}/libcuda.so.1" for name in names]
    text = "".join(line(path, inode=1 + number) for number, path in enumerate(paths))
    assert [file.path for file in read_maps(text)] == [path.replace("\\012", "\n") for path in paths]


def test_this_process() -> None:
    text = os.fsdecode(Path("/proc/self/maps").read_bytes())
    files = {file.role: file for file in read_maps(text, str(Path("/proc/self/exe").readlink()))}
    assert {"libc", "program"} <= set(files)
    assert files["program"].inode == Path("/proc/self/exe").stat().st_ino
    assert re.search(rf"^{files['libc'].start:x}-", text, re.MULTILINE)


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcudart.so.13", "libcudart-d0da41ae.so.11.0"])
def test_the_mark_is_in_the_text_of_all_that_map_cuda(name: str) -> None:
    assert MARK in line(f"/usr/lib/{name}").encode()
