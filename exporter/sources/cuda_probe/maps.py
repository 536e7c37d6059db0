r"""The mapped files that matter to the probe, by the text of /proc/<pid>/maps.

Each line is `<start>-<end> <rights> <offset> <device> <inode> <path>` (proc(5)): numbers in hex, but the inode. A line
end in a path is written as \012 and nothing else is escaped, so a file whose name holds those four characters is taken
for one with a line end. A file that is gone has " (deleted)" behind its path, which a name may end in as well.

The path is that of the process' own mount namespace. Whoever runs in a container chooses the names.
"""

import re
from collections import Counter
from typing import Literal, NamedTuple

# "program" is the executable itself, which may have the CUDA runtime linked in.
Role = Literal["cudart", "cuda", "libc", "program"]

# What must stand in the text of every process that maps the CUDA runtime or driver: cheap to look for in the bytes.
MARK = b"/libcuda"
# A process maps a runtime, a driver and a libc. Whoever maps more copies of them than this has the first ones seen.
MOST_FILES = 16

_LINE = re.compile(
    r"^(?P<start>[0-9a-f]{1,16})-[0-9a-f]{1,16} [r-][w-]x[ps] (?P<offset>[0-9a-f]{1,16}) "
    r"(?P<device>[0-9a-f]{1,8}:[0-9a-f]{1,8}) (?P<inode>[1-9][0-9]{0,19}) +(?P<path>/[^\n]*)$",
    re.MULTILINE,
)
_DELETED = " (deleted)"
_ROLES: tuple[tuple[Role, re.Pattern[str]], ...] = (
    # wheels for Python rename the copy that they carry: libcudart-d0da41ae.so.11.0
    ("cudart", re.compile(r"libcudart(?:-[0-9a-f]+)?\.so(?:\..*)?", re.DOTALL)),
    ("cuda", re.compile(r"libcuda\.so(?:\..*)?", re.DOTALL)),
    # glibc: libc.so.6, before 2.34 libc-2.31.so; musl: one file that is loader and libc under any of these names
    (
        "libc",
        re.compile(r"libc\.so(?:\.6)?|libc-2\.[0-9.]+\.so|ld-musl-[a-z0-9_]+\.so\.1|libc\.musl-[a-z0-9_]+\.so\.1"),
    ),
)


class MappedFile(NamedTuple):
    """A file that is mapped executable, by the first of those mappings.

    `path` is that of the process' mount namespace, without the mark of a deleted file. `device` is "major:minor" in
    hex as the kernel shows it, which need not be what fstat says (overlayfs, btrfs). `start` is the address in the
    process, `offset` the place in the file. `times` is how often the process has mapped it executable.
    """

    path: str
    is_deleted: bool
    device: str
    inode: int
    start: int
    offset: int
    role: Role
    times: int = 1


def read_maps(text: str, program: str = "") -> tuple[MappedFile, ...]:
    """The files that are mapped executable and matter, each once, in the order of their addresses.

    `program` is what the link /proc/<pid>/exe says: that file is one of them. Lines of another form are left out.
    Of more than `MOST_FILES` files the others are left out.
    """
    files: dict[tuple[str, int, str], MappedFile] = {}
    more: Counter[tuple[str, int, str]] = Counter()
    for line in _LINE.finditer(text):
        shown = line["path"].replace("\\012", "\n")
        path = shown.removesuffix(_DELETED)
        role = "program" if shown == program else _role(path)
        if role is None:
            continue
        key = line["device"], int(line["inode"]), path
        if key in files:
            more[key] += 1
        elif len(files) < MOST_FILES:
            files[key] = MappedFile(
                path, shown != path, *key[:2], int(line["start"], 16), int(line["offset"], 16), role
            )
    return tuple(file._replace(times=1 + more[key]) for key, file in files.items())


def _role(path: str) -> Role | None:
    name = path.rpartition("/")[2]
    return next((role for role, pattern in _ROLES if pattern.fullmatch(name)), None)
