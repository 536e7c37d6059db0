"""Cubins: what ptxas said of each kernel when it made it is what is read from the file."""

from dataclasses import replace
from pathlib import Path

import pytest

from exporter.errors import Malformed
from exporter.probe.cuda_binary import Cubin, Kernel, read_cubin
from exporter.probe.elf import in_memory
from tests.support.cuda_binaries import (
    CUDA,
    EM_X86_64,
    PARAMETER_BYTES,
    Function,
    Section,
    attributes,
    cubin,
    elf,
    said_by_ptxas,
)

CUBINS = sorted(CUDA.glob("*.cubin"))


def read(data: bytes, most_kernels: int = 100) -> Cubin:
    return read_cubin(in_memory(data), most_kernels)


@pytest.mark.parametrize("path", CUBINS, ids=lambda path: path.stem)
def test_what_ptxas_said_is_what_is_read(path: Path) -> None:
    made = read(path.read_bytes())
    number = int(path.stem.rpartition("_")[2])
    said = said_by_ptxas(path.with_suffix(".txt").read_text(), number)
    assert said.keys() == PARAMETER_BYTES.keys()
    assert (made.number, made.is_relocatable) == (number, "relocatable" in path.stem)
    assert {kernel.name: replace(kernel, code_bytes=0) for kernel in made.kernels} == said
    # instructions have 8 bytes before sm_70 and 16 since, and code is padded to 32 or 64 and to 128
    assert all(kernel.code_bytes >= 128 and kernel.code_bytes % 64 == 0 for kernel in made.kernels)


def test_there_are_cubins_of_each_form() -> None:
    assert {path.stem for path in CUBINS} == {
        "11.8-sm_35", "11.8-sm_80", "12.4-sm_52", "12.4-sm_90", "13.0-relocatable-sm_90", "13.0-sm_75", "13.0-sm_90",
        "13.0-sm_120",
    }  # fmt: skip


CODE = Section(name=b".text.f", data=bytes(48), info=0x0700_0004)


def test_what_belongs_to_a_kernel() -> None:
    sections = [
        CODE,
        Section(name=b".nv.shared.f", size=100, kind=8, info=1),
        Section(name=b".nv.constant0.f", size=20, info=1),
        Section(name=b".nv.constant2.f", size=3, info=1),
        Section(name=b".nv.constant3", size=5000),  # the module's
        Section(name=b".nv.shared.reserved.0", size=5000, kind=8),
        Section(name=b".nv.info", data=attributes((0x2F, 1, 33), (0x11, 1, 8), (0x12, 1, 40), (0x2F, 2, 99))),
        Section(name=b".nv.info.f", data=attributes((0x2F, 1, 1))),
    ]
    functions = [Function(), Function(name=b"no_kernel", other=0)]
    assert read(cubin(functions, sections)).kernels == (Kernel("f", 48, 33, 100, 23, 40),)


@pytest.mark.parametrize(
    ("info", "registers", "stack"),
    [
        (b"", 7, None),  # of older compilers, the code's section says it
        (attributes((0x11, 1, 8)), 7, 8),
        (b"\x01\x2a\0\0" + b"\x03\x1b\xff\0" + attributes((0x2F, 1, 6)), 6, None),
        (attributes((0x2F, 1, 6))[:-1], 7, None),
        (b"\x04\x2f\x04\0\x01\0\0\0", 7, None),
        (attributes((0x2F, 1, 6)) + b"\x04", 6, None),
    ],
)
def test_attributes(info: bytes, registers: int, stack: int | None) -> None:
    (kernel,) = read(cubin([Function()], [CODE, Section(name=b".nv.info", data=info)])).kernels
    assert (kernel.registers, kernel.stack_bytes) == (registers, stack)


def test_what_is_not_said_is_unknown() -> None:
    (kernel,) = read(cubin([Function()], [replace(CODE, info=4)])).kernels
    assert kernel == Kernel("f", 48, None, 0, 0, None)


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({"flags": 0x5A055A}, 976),  # sm_90: 1 KiB of it is the system's
        ({"flags": 0x59055A - 1}, 2000),  # sm_89
        ({"flags": 0x5A055A, "kind": 1}, 2000),  # not yet linked
        ({"flags": 0x6005A04, "os_abi": 0x41}, 976),
        ({"flags": 0x6005004, "os_abi": 0x41}, 2000),
    ],
)
def test_what_the_system_keeps_of_shared_memory(fields: dict[str, int], shared: int) -> None:
    sections = [CODE, Section(name=b".nv.shared.f", size=2000, kind=8, info=1)]
    (kernel,) = read(cubin([Function()], sections, **fields)).kernels
    assert kernel.shared_bytes == shared


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not an ELF file"),
        (b"\x7fELF", "64 bytes at 0x0"),
        (elf([], machine=EM_X86_64), "machine 62"),
        (b"\x7fELF\x01" + elf([])[5:], "not one of 64 bits"),
        (cubin([Function()], [CODE])[:-1], "are named"),
        (cubin([Function()], [CODE, Section(name=b".nv.info", size=9_000_000)]), "a table of 9000000 bytes"),
        (cubin([Function()], [CODE, Section(name=b".nv.info", size=8_000_000)]), "8000000 bytes at"),
        (cubin([Function()], [Section(name=b".symtab", kind=2, link=77), CODE]), "in section 77, of 6"),
        (cubin([Function()] * 101, [CODE]), "more kernels than are read"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_refused(data: bytes, says: str) -> None:
    with pytest.raises(Malformed, match=says):
        read(data)


def test_a_function_without_code_is_no_kernel() -> None:
    assert read(cubin([Function(code=9)], [CODE])).kernels == ()


def test_a_name_ends_somewhere() -> None:
    long, odd = b"a" * 20_000, b"\xff\xc3\xa4\x1b"
    kernels = read(cubin([Function(name=long), Function(name=odd)], [CODE])).kernels
    assert [kernel.name for kernel in kernels] == ["a" * 8192, r"\xff\xc3\xa4" + "\x1b"]


# issue 13, "Must show" 7
def test_names_that_overlap_do_not_fill_the_memory() -> None:
    """30 KB without an end in them, named from 20,000 places, would be 160 MB of names."""
    functions = [Function(name=b"x" * 30_000), *(Function(name_at=place) for place in range(1, 20_000))]
    data = cubin(functions, [CODE])
    assert len(data) < 600_000
    with pytest.raises(Malformed, match="more kernels than are read"):
        read(data, 20_000)
