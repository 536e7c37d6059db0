"""`doctor --cuda-binary`: the CUDA kernels of a file, as lines for a terminal."""

from collections.abc import Iterator, Sequence

from exporter.config.files import open_regular
from exporter.errors import ExporterError, Malformed
from exporter.probe.cuda_binary import Compiled, CudaBinary, read_cuda_binary
from exporter.probe.elf import in_file
from exporter.wording import and_listed, escaped

_TITLES = ("", "registers", "code", "shared", "constant", "stack")
_UNITS = (
    "Registers and stack are each thread's, shared memory is each block's; what is asked for at launch is not in it.",
    "Code, shared and constant memory and stack are in bytes. `-`: the file does not say.",
)
_LEAST_OF_NAME = 20
_MOST_ARCHITECTURES = 30


def listing(path: str, width: int | None) -> str:
    """The GPU code of a file, as lines. With a `width`, names are cut to fit; else they are whole, for c++filt.

    Raises:
        ExporterError: the file cannot be read, or has no GPU code. The text is one line.
    """
    try:
        with open_regular(path) as file:
            binary = read_cuda_binary(in_file(file.fileno()))
    except OSError as error:
        raise ExporterError(f"--cuda-binary: {path!r} cannot be read: {error.strerror}") from error
    except Malformed as error:
        raise ExporterError(f"--cuda-binary: {path!r}: {error}") from error
    return "".join(f"{escaped(line)}\n" for line in _lines(binary, width))


def _lines(binary: CudaBinary, width: int | None) -> Iterator[str]:
    yield f"{_summary(binary)}."
    for why, count in binary.unread.items():
        yield f"{count} x {why}"
    if binary.ended_early:
        yield f"What follows was not read: {binary.ended_early}."
    if binary.kernels:
        yield ""
        yield from _table(binary.kernels, width)
        yield ""
        yield from _UNITS


def _summary(binary: CudaBinary) -> str:
    """The file's GPU code in one line, such as "3 kernels for sm_80 and sm_90, PTX for compute_90"."""
    names = len({compiled.kernel.name for compiled in binary.kernels})
    are_all = not (binary.unread or binary.ended_early)
    kernels = f"{names or 'no'} kernel{'' if names == 1 else 's'}{'' if are_all else ' read'}"
    parts = [
        f"{kernels} for {_joined(binary.cubins, 'sm_')}" if binary.cubins else f"{kernels} in machine code",
        f"PTX for {_joined(binary.ptx, 'compute_')}" if binary.ptx else "",
        f"code to be linked for {_joined(binary.lto, 'lto_')}" if binary.lto else "",
    ]
    return ", ".join(part for part in parts if part)


def _joined(architectures: Sequence[str], prefix: str) -> str:
    named = [f"{prefix}{architecture}" for architecture in architectures]
    return and_listed(named, _MOST_ARCHITECTURES)


def _table(kernels: Sequence[Compiled], width: int | None) -> Iterator[str]:
    rows = [_TITLES, *(_cells(compiled) for compiled in kernels)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    names = ["kernel", *(compiled.kernel.name for compiled in kernels)]
    for (architecture, *numbers), name in zip(rows, names, strict=True):
        begin = "  ".join([architecture.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])])
        yield f"{begin}  {name if width is None else _cut(name, width - len(begin) - 2)}"


def _cells(compiled: Compiled) -> tuple[str, ...]:
    kernel = compiled.kernel
    numbers = (
        kernel.registers, kernel.code_bytes, kernel.shared_bytes, kernel.constant_bytes, kernel.stack_bytes
    )  # fmt: skip
    return (f"sm_{compiled.architecture}", *("-" if number is None else str(number) for number in numbers))


def _cut(name: str, most: int) -> str:
    """A name, without its middle if it is too long: templates begin alike, and end with their arguments."""
    most = max(most, _LEAST_OF_NAME)
    if len(name) <= most:
        return name
    end = most // 3
    return f"{name[: most - end - 1]}…{name[-end:]}"
