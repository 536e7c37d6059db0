"""Anybody may send a bundle: whatever is wrong with one costs a line, no file and no memory."""

import gzip
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exporter.bundle.archive import read, write
from exporter.errors import ExporterError
from tests.support.places import ROOT
from tests.support.recordings import SMALL

MIB = 1024 * 1024
MOST_MEMORY_MIB = 100
DAMAGED_BUNDLES = 390
_file = io.BytesIO()
write(SMALL, _file)
PACKED = _file.getvalue()
TAR = gzip.decompress(PACKED)
with tarfile.open(fileobj=io.BytesIO(TAR)) as _tar:
    FILES = {member.name: _tar.extractfile(member).read() for member in _tar.getmembers()}  # type: ignore[union-attr]
DOCUMENT = "gpu-bundle/bundle.json"
CALLS = "gpu-bundle/moments/00/nvml.jsonl"
HOSTILE_NAMES = [
    "../climbs",
    "gpu-bundle/../../climbs",
    "/etc/cron.d/absolute",
    "gpu-bundle//etc",
    "gpu-bundle/./bundle.json",
    "gpu-bundle\\..\\climbs",
    "C:\\climbs",
    "gpu-bundle/\x1b[31m\nred",
    "",
    "alone",
    "gpu-bundle/" + "long/" * 200_000,
]
HOSTILE_VALUES: list[Any] = [
    None, True, -1, 0, 2**70, 1e999, float("nan"), 0.5, "", "\x1b[31m\r\n", "x" * 2**17, "../bundle.json",
    "moments/00/nvml.jsonl", "bundle.json", [], {}, [None] * 20_001, {"": ""}, [[[[[]]]]], [{}], "ü\ud800",
]  # fmt: skip


def tar_of(files: Mapping[str, bytes], extra: Callable[[tarfile.TarFile], None] = lambda _: None) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
        extra(tar)
    return archive.getvalue()


def packed(tar: bytes) -> bytes:
    return gzip.compress(tar, 1)


def flip(content: bytes, chance: random.Random) -> bytes:
    damaged = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        damaged[chance.randrange(len(damaged))] ^= 1 << chance.randrange(8)
    return bytes(damaged)


def flipped_bytes(chance: random.Random) -> bytes:
    return flip(PACKED, chance)


def cut(chance: random.Random) -> bytes:
    return PACKED[: chance.randrange(len(PACKED))]


def flipped_within(chance: random.Random) -> bytes:
    return packed(flip(TAR, chance))


def flipped_header(chance: random.Random) -> bytes:
    """In the first header, whose checksum is made right again."""
    header = bytearray(flip(TAR[:512], chance))
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return packed(bytes(header) + TAR[512:])


def cut_within(chance: random.Random) -> bytes:
    return packed(TAR[: chance.randrange(len(TAR))])


def longer(chance: random.Random) -> bytes:
    return PACKED + chance.randbytes(chance.randint(1, 100))


def other_members(chance: random.Random) -> bytes:
    """A member is renamed, twice there, missing, or has another's content."""
    files = dict(FILES)
    name, other = chance.sample(sorted(files), 2)
    match chance.randrange(4):
        case 0:
            files[chance.choice(HOSTILE_NAMES)] = files.pop(name)
        case 1:
            del files[name]
        case 2:
            files[name] = files[other]
        case _:
            return packed(tar_of(files, lambda tar: tar.addfile(tarfile.TarInfo(name))))
    return packed(tar_of(files))


def other_kinds(chance: random.Random) -> bytes:
    """A link, a device, a pipe, a folder or an extended header beside the files, or in place of one."""
    header = tarfile.TarInfo(chance.choice([*HOSTILE_NAMES[:8], *FILES]))
    header.type = chance.choice([b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"L", b"K", b"S", b"x", b"g", b"Z", b"\xff"])
    header.linkname = "/etc/passwd"
    header.size = chance.choice([0, 0, 512, 10**9])
    files = {name: content for name, content in FILES.items() if name != header.name or chance.random() < 0.5}
    return packed(with_header(files, header))


def with_header(files: Mapping[str, bytes], header: tarfile.TarInfo) -> bytes:
    """A tar with one more header at its beginning, for what tarfile itself would not write."""
    return header.tobuf(tarfile.GNU_FORMAT) + bytes(header.size % 10**9) + tar_of(files)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a document, with each key in it."""
    for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def changed(document: Any, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 2)):
        container, key = chance.choice(list(places(document)))
        if chance.random() < 0.2:
            del container[key]
        else:
            container[key] = chance.choice(HOSTILE_VALUES)
        if not document:
            break
    text = json.dumps(document)
    return text.replace("Infinity", chance.choice(["1e999", "Infinity", "-1e999", "1" * 5_000])).encode()


def other_document(chance: random.Random) -> bytes:
    return packed(tar_of({**FILES, DOCUMENT: changed(json.loads(FILES[DOCUMENT]), chance)}))


def other_calls(chance: random.Random) -> bytes:
    lines = FILES[CALLS].splitlines()
    number = chance.randrange(len(lines))
    lines[number] = changed(json.loads(lines[number]), chance)
    return packed(tar_of({**FILES, CALLS: b"\n".join(lines)}))


def other_text(chance: random.Random) -> bytes:
    name = chance.choice(list(FILES))
    return packed(tar_of({**FILES, name: chance.randbytes(100)}))


DAMAGES = [
    flipped_bytes, cut, flipped_within, flipped_header, cut_within, longer, other_members, other_kinds, other_document,
    other_document, other_document, other_calls, other_text,
]  # fmt: skip


def reads(archive: bytes, file: Path) -> bool:
    """Whether it is read. If it is not, the error is a line that names the file."""
    file.write_bytes(archive)
    try:
        read(file)
    except ExporterError as error:
        line = str(error)
        assert line.startswith(f"{file}: "), line
        assert line.isprintable(), line
        assert len(line) < 1_000, line
        return False
    return True


def test_a_damaged_bundle_costs_a_line_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    file = below / "bundle.tar.gz"
    refused: dict[str, int] = {}
    for seed in range(DAMAGED_BUNDLES):
        damage = DAMAGES[seed % len(DAMAGES)]
        was_read = reads(damage(random.Random(seed)), file)
        refused[damage.__name__] = refused.get(damage.__name__, 0) + (not was_read)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]
    assert all(refused.values()), refused  # each kind of damage is one
    assert sum(refused.values()) > DAMAGED_BUNDLES // 2


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if name != HOSTILE_NAMES[7]])
def test_a_file_that_leads_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    assert not reads(packed(tar_of({**FILES, name: b"x"})), tmp_path / "bundle.tar.gz")


def test_what_a_person_packed_again_is_read(tmp_path: Path) -> None:
    """GNU tar and BSD tar add folders and extended headers, and may order files in another way."""
    (folder := tmp_path / "gpu-bundle").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for form in ("gnu", "posix", "ustar"):
        archive = tmp_path / f"{form}.tar.gz"
        subprocess.run(["tar", "-czf", archive, f"--format={form}", "-C", tmp_path, folder.name], check=True)
        assert read(archive) == SMALL


def test_no_pipe_and_no_folder_is_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", tmp_path / "absent", tmp_path / ("x" * 300)):
        with pytest.raises(ExporterError):
            read(path)


def document_with(**change: object) -> bytes:
    return json.dumps({**json.loads(FILES[DOCUMENT]), **change}).encode()


def folder_headers(count: int) -> bytes:
    header = tarfile.TarInfo("gpu-bundle/folder")
    header.type = tarfile.DIRTYPE
    return header.tobuf(tarfile.USTAR_FORMAT) * count


def empty_files(count: int) -> bytes:
    """Headers of files with names that differ, without what tarfile takes for each."""
    header = bytearray(tarfile.TarInfo("gpu-bundle/00000").tobuf(tarfile.USTAR_FORMAT))
    digits = slice(len("gpu-bundle/"), len("gpu-bundle/00000"))
    headers = bytearray()
    rest = sum(header) - sum(header[digits]) - sum(header[148:156]) + 8 * ord(" ")
    for number in range(count):
        header[digits] = b"%05d" % number
        header[148:156] = b"%06o\0 " % (rest + sum(header[digits]))
        headers += header
    return bytes(headers)


def large_bundles() -> Iterator[tuple[str, bytes]]:
    """Bundles that would take much memory if nobody counted, and some that are almost too large."""
    calls = b'{"function":"f"}\n'
    moments = b'{"form":1,"madeBy":"","settings":{},"moments":['
    yield "zeros", packed(bytes(100 * MIB))
    yield "a large file", packed(tar_of({**FILES, "gpu-bundle/x": bytes(45 * MIB)}))
    yield "folders", packed(folder_headers(90_000))
    yield "files", packed(empty_files(20_001))
    yield "a long name", packed(tar_of({"gpu-bundle/" + "x/" * 5 * MIB: b""}))
    yield "nested", packed(tar_of({DOCUMENT: b"[" * 100_000}))
    yield "lists", packed(tar_of({DOCUMENT: b"[" + b"[]," * 5 * MIB + b"[]]"}))
    yield "almost too many lists", packed(tar_of({DOCUMENT: b"[" + b"[]," * 130_000 + b"[]]"}))
    yield "moments", packed(tar_of({DOCUMENT: moments + b'{"atSeconds":1},' * 100_000 + b'{"atSeconds":1}]}'}))
    moment = {"atSeconds": 1, "calls": "c", "kernelLog": "l", "outputs": {"/": "c"}}
    files = {**FILES, "gpu-bundle/c": calls * 20_000, "gpu-bundle/l": b"x\n" * 20_000}
    yield "one file many times", packed(tar_of({**files, DOCUMENT: document_with(moments=[moment] * 5_000)}))
    yield "calls", packed(tar_of({**FILES, CALLS: calls * 300_000}))
    yield "almost too many calls", packed(tar_of({**FILES, CALLS: calls * 110_000}))
    yield "empty lines", packed(tar_of({**FILES, "gpu-bundle/log.txt": b"\n" * 20 * MIB}))
    yield "lines of calls", packed(tar_of({**FILES, CALLS: b"\n" * 20 * MIB}))
    wide = "\U0001f600".encode()
    yield "wide characters", packed(tar_of({**FILES, "gpu-bundle/report.txt": wide + b"x" * 15 * MIB}))
    yield "almost too many wide ones", packed(tar_of({**FILES, "gpu-bundle/report.txt": wide + b"x" * 11 * MIB}))


def crowded_bundles() -> Iterator[tuple[str, bytes]]:
    """Bundles whose words would take much memory to show."""
    chance = random.Random(1)
    letters = chance.randbytes(4 * MIB).translate(bytes(b"abcdefghijklmnop"[n % 16] if n else 32 for n in range(256)))
    outputs = {"moments": [{"atSeconds": 1, "outputs": {"/": "words"}}], "report": "", "log": "", "ofExporter": {}}
    for name, content in {
        "words": letters,
        "lines": b"\n" * 2 * MIB,
        "a wide line": "\U0001f600".encode() * 2 * MIB,
        "lists": b"[" + b"[]," * 100_000 + b"[]]",
        "labels": b"".join(b'x{pod="%x"} 1\n' % number for number in range(50_000)),
    }.items():
        yield name, packed(tar_of({DOCUMENT: document_with(**outputs), "gpu-bundle/words": content}))


_READER = """
import os
import sys
from pathlib import Path
from exporter.bundle.archive import read
from exporter.bundle.show import shown
from exporter.errors import ExporterError

def take(file):
    try:
        recording = read(Path(file))
        if sys.argv[1:]:
            shown(recording, "x", 1)
        print("read")
    except ExporterError as error:
        print(error)
    status = Path("/proc/self/status").read_text()
    print([line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")][0], flush=True)

# each in a fork, so that its peak is its own: it begins with the libraries that this process has loaded
for line in sys.stdin:
    if not (child := os.fork()):
        take(line.rstrip())
        os._exit(0)
    os.waitpid(child, 0)
"""


def peaks_of(bundles: Iterator[tuple[str, bytes]], file: Path, *arguments: str) -> dict[str, tuple[float, str]]:
    """By bundle, the MiB of memory that a process took to read it, and what the process printed."""
    peaks = {}
    command = [sys.executable, "-c", _READER, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as reader:
        assert reader.stdin
        assert reader.stdout
        for name, archive in bundles:
            file.write_bytes(archive)
            reader.stdin.write(f"{file}\n")
            reader.stdin.flush()
            answer, kib = (reader.stdout.readline().rstrip() for _ in range(2))
            peaks[name] = int(kib) / 1024, answer
    return peaks


def test_no_bundle_takes_much_memory(tmp_path: Path) -> None:
    peaks = peaks_of(large_bundles(), tmp_path / "bundle.tar.gz")
    assert max(peaks.values()) < (MOST_MEMORY_MIB, ""), peaks
    were_read = [name for name, (_, answer) in peaks.items() if answer == "read"]
    assert were_read == ["a large file", "one file many times", "almost too many calls", "almost too many wide ones"]


def test_no_bundle_takes_much_memory_from_who_shows_it(tmp_path: Path) -> None:
    peaks = peaks_of(crowded_bundles(), tmp_path / "bundle.tar.gz", "show")
    assert {answer for _, answer in peaks.values()} == {"read"}, peaks
    assert max(peaks.values()) < (2 * MOST_MEMORY_MIB, ""), peaks
