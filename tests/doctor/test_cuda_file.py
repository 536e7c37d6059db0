"""`doctor --cuda-binary`: the kernels of a file as a table, and one line where there are none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.cli import main
from exporter.doctor import cuda_file
from exporter.probe.cuda_binary import Compiled, CudaBinary, Kernel
from tests.support.cuda_binaries import CUDA, LTO, PTX, ZSTD, Function, Section, cubin, elf, entry, fatbin, program
from tests.support.places import ROOT


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["doctor", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


# issue 13, part "CUDA binaries"
def test_the_kernels_of_a_fatbin(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--cuda-binary", str(CUDA / "size.fatbin")) == (
        0,
        """\
5 kernels for sm_75 and sm_90a, PTX for compute_90.

        registers  code  shared  constant  stack  kernel
sm_75          10   768       0       536    512  _Z12on_the_stackIdLi64EEvPKi3BigPT_
sm_90a         12   896       0       704    512  _Z12on_the_stackIdLi64EEvPKi3BigPT_
sm_75          11   512    1024       368      0  _Z9block_sumPKfPf
sm_90a         12   768    1024       544      0  _Z9block_sumPKfPf
sm_75          12   384     256       360      0  calls
sm_90a         12   640     256       536      0  calls
sm_75          12   256       0       368      0  given_shared
sm_90a         14   512       0       544      0  given_shared
sm_75          10   256       0       376      0  saxpy
sm_90a         10   512       0       552      0  saxpy

Registers and stack are each thread's, shared memory is each block's; what is asked for at launch is not in it.
Code, shared and constant memory and stack are in bytes. `-`: the file does not say.
""",
        "",
    )


@pytest.mark.parametrize(
    ("data", "begins"),
    [
        (
            fatbin(entry(b"", PTX, 90), entry(b"", PTX, 120)),
            "no kernels in machine code, PTX for compute_90 and compute_120.\n",
        ),
        (fatbin(entry(b"", LTO, 90)), "no kernels in machine code, code to be linked for lto_90.\n"),
        (fatbin(entry(cubin([], []))), "no kernels for sm_80.\n"),
        (fatbin(entry(cubin([Function()], [Section(name=b".text.f")]))), "1 kernel for sm_80.\n\n"),
        (
            program(fatbin(entry(b"", PTX, 90), *[entry(b"x", flags=ZSTD, unpacked=9)] * 2)),
            "no kernels read for sm_80, PTX for compute_90.\n2 x cubin compressed (zstd), not read: packed by zstd",
        ),
        (
            fatbin(*(entry(b"", PTX, number) for number in range(100, 140))),
            "no kernels in machine code, PTX for compute_100, ",
        ),
    ],
)  # fmt: skip
def test_what_else_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, begins: str) -> None:
    path = tmp_path / "a b"
    path.write_bytes(data)
    code, out, _ = said(capsys, "--cuda-binary", str(path))
    assert (code, out[: len(begins)]) == (0, begins)
    assert len(out.splitlines()[0]) < 500
    assert ("and 10 more.\n" in out) == ("compute_100," in begins)


# issue 13, part "CUDA binaries"
@pytest.mark.parametrize("kind", ["program", "text", "nothing", "folder", "fifo", "device", "missing", "broken"])
def test_where_there_is_no_gpu_code_one_line_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    path = tmp_path / "file"
    content = {"program": elf([]), "text": b"#!/bin/sh\n", "nothing": b"", "broken": program(b"x" * 50)}
    if kind in content:
        path.write_bytes(content[kind])
    elif kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    why = {
        "program": ": it has no GPU code of CUDA's (no section .nv_fatbin)",
        "text": ": it is not an ELF file",
        "nothing": ": it is not an ELF file",
        "broken": ": fatbin, not read to its end: at 0x0 stands 0x78787878, where a fatbin begins with 0xba55ed50",
        "folder": " cannot be read: it is a directory, not a file",
        "fifo": " cannot be read: it is a FIFO, not a file",
        "device": " cannot be read: it is a device, not a file",
        "missing": " cannot be read: No such file or directory",
    }[kind]
    assert said(capsys, "--cuda-binary", str(path)) == (
        1, "", f"pod-gpu-metrics-exporter: --cuda-binary: '{path}'{why}\n",
    )  # fmt: skip


@pytest.mark.parametrize("other", ["--strict", "--bundle=x.tar.gz", "--conformance=x.yaml"])
def test_it_is_about_the_file_alone(capsys: pytest.CaptureFixture[str], other: str) -> None:
    code, out, err = said(capsys, "--cuda-binary", str(CUDA / "size.fatbin"), other)
    assert (code, out, "leave out --bundle, --conformance and --strict" in err) == (2, "", True)


def test_names_are_whole_for_programs_and_cut_for_people(tmp_path: Path) -> None:
    name = b"_Z" + bytes(range(65, 91)) * 20 + b"END"
    path = tmp_path / "file"
    path.write_bytes(fatbin(entry(cubin([Function(name=name)], [Section(name=b".text.f")]))))
    assert name.decode() in cuda_file.listing(str(path), None)
    for width in (80, 100, 200):
        row = cuda_file.listing(str(path), width).splitlines()[3]
        assert len(row) == width
        assert row.endswith("END")
        assert "  _ZABC" in row
    assert "_ZABC" in cuda_file.listing(str(path), 10)


def test_no_name_writes_to_the_terminal_what_it_likes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    name = b"\x1b[2J\r\x07\xc2\x9b\xff"
    path.write_bytes(fatbin(entry(cubin([Function(name=name)], [Section(name=b".text.f")]))))
    listed = cuda_file.listing(str(path), None)
    assert listed.isascii()
    assert listed.replace("\n", "").isprintable()
    assert r"\x1b[2J\r\x07\xc2\x9b\xff" in listed


def test_what_is_not_known_has_no_number() -> None:
    kernel = Compiled(80, "80", Kernel("f", 1, None, 2, 3, None))
    lines = [*cuda_file._lines(CudaBinary(kernels=(kernel,), cubins=("80",), ended_early="x"), None)]
    assert lines[:2] == ["1 kernel read for sm_80.", "What follows was not read: x."]
    assert lines[4].split() == ["sm_80", "-", "1", "2", "3", "-", "f"]


def test_the_program_itself_to_a_reader_that_goes_away(tmp_path: Path) -> None:
    path = tmp_path / "file"
    functions = [Function(name=b"kernel_%d" % number) for number in range(5000)]
    path.write_bytes(fatbin(entry(cubin(functions, [Section(name=b".text.f")]))))
    command = f"{sys.executable} -m exporter doctor --cuda-binary '{path}' | head -1"
    ended = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True, timeout=30, cwd=ROOT)
    assert (ended.stdout, ended.stderr) == ("5000 kernels for sm_80.\n", "")
