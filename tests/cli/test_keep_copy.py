"""The copy of a ConfigMap's file that dcgm-exporter can follow: a real process, and inotify as it uses it."""

import ctypes
import errno
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exporter.cli import keep_copy
from exporter.cli.keep_copy import MOST_BYTES, Unusable, copy_once, main
from tests.support.places import ROOT
from tests.support.waiting import PATIENCE_SECONDS, wait_until

NAME = "counters.csv"
LIBC = ctypes.CDLL(None, use_errno=True)
# what dcgm-exporter looks for (fsnotify's Create, Write, Remove and Rename): IN_MODIFY, IN_MOVED_FROM, IN_MOVED_TO,
# IN_CREATE, IN_DELETE
MASK = 0x2 | 0x40 | 0x80 | 0x100 | 0x200


class ConfigMapVolume:
    """A folder as the kubelet keeps it: links to files in ..data, which is a link to the folder of this version."""

    def __init__(self, folder: Path, content: str) -> None:
        self.folder = folder
        self._versions = 0
        folder.mkdir()
        self.put(content)
        (folder / NAME).symlink_to(f"..data/{NAME}")

    def put(self, content: str) -> None:
        """Another version: a new folder, a new link under another name, a rename, and the old folder goes."""
        before = self.folder / f"..{self._versions}"
        self._versions += 1
        version = self.folder / f"..{self._versions}"
        version.mkdir()
        (version / NAME).write_text(content)
        (self.folder / "..data_tmp").symlink_to(version.name)
        (self.folder / "..data_tmp").rename(self.folder / "..data")
        if before.exists():
            shutil.rmtree(before)


class Watched:
    """The names in a folder that something happens to."""

    def __init__(self, folder: Path) -> None:
        self._inotify = LIBC.inotify_init1(os.O_NONBLOCK)
        assert self._inotify >= 0
        assert LIBC.inotify_add_watch(self._inotify, os.fsencode(folder), MASK) >= 0

    def names(self, wait_seconds: float) -> set[str]:
        select.select([self._inotify], [], [], wait_seconds)
        try:
            told = os.read(self._inotify, 65536)
        except BlockingIOError:
            return set()
        found = set()
        while told:
            (length,) = struct.unpack_from("12xI", told)
            found.add(told[16 : 16 + length].rstrip(b"\0").decode())
            told = told[16 + length :]
        return found

    def close(self) -> None:
        os.close(self._inotify)


@pytest.fixture
def volume(tmp_path: Path) -> ConfigMapVolume:
    return ConfigMapVolume(tmp_path / "config-map", "DCGM_FI_A, gauge, a.\n")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    folder.mkdir()
    return folder / NAME


@pytest.fixture
def watch() -> Iterator[Callable[[Path], Watched]]:
    watched = []

    def begin(folder: Path) -> Watched:
        watched.append(Watched(folder))
        return watched[-1]

    yield begin
    for one in watched:
        one.close()


def test_in_a_config_maps_own_volume_dcgm_exporter_would_see_nothing(
    volume: ConfigMapVolume, watch: Callable[[Path], Watched]
) -> None:
    """Why this is needed: the name that dcgm-exporter waits for does not come up, and the content has changed."""
    watched = watch(volume.folder)
    volume.put("DCGM_FI_B, gauge, b.\n")
    names = watched.names(1)
    assert "..data" in names
    assert NAME not in names
    assert (volume.folder / NAME).read_text() == "DCGM_FI_B, gauge, b.\n"


# issue 14, line 2: "A changed collectors list reloads dcgm-exporter without restarting pods"
def test_every_change_is_seen_in_the_copys_folder(
    volume: ConfigMapVolume, target: Path, watch: Callable[[Path], Watched]
) -> None:
    assert copy_once(volume.folder / NAME, target)
    watched = watch(target.parent)
    assert not copy_once(volume.folder / NAME, target)
    assert watched.names(0.05) == set()
    for content in ("DCGM_FI_B, gauge, b.\n", "DCGM_FI_C, gauge, c.\n"):
        before = target.stat()
        volume.put(content)
        assert copy_once(volume.folder / NAME, target)
        assert NAME in watched.names(1)
        assert target.read_text() == content
        # dcgm-exporter compares the time of the last change, too
        assert target.stat().st_mtime_ns != before.st_mtime_ns
        assert [path.name for path in target.parent.iterdir()] == [NAME]


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "empty"), (b" \n", "empty"), (b"x" * (MOST_BYTES + 1), "1048576"), (None, "No such file")],
)
def test_what_cannot_be_used_leaves_the_copy_as_it_was(
    tmp_path: Path, target: Path, content: bytes | None, why: str
) -> None:
    target.write_text("as it was\n")
    source = tmp_path / "source"
    if content is not None:
        source.write_bytes(content)
    with pytest.raises(Unusable, match=why):
        copy_once(source, target)
    assert target.read_text() == "as it was\n"


@pytest.mark.parametrize("content", [b"", b"x" * (MOST_BYTES + 1), b"DCGM_FI_A, gauge, a.\nand more"])
def test_a_copy_that_was_spoilt_is_made_anew(volume: ConfigMapVolume, target: Path, content: bytes) -> None:
    """As a machine that lost power may leave it, in a folder that outlives a restart of the pod's containers."""
    target.write_bytes(content)
    assert copy_once(volume.folder / NAME, target)
    assert target.read_text() == "DCGM_FI_A, gauge, a.\n"


def test_a_disk_that_is_full_is_said_with_the_files_name(
    volume: ConfigMapVolume, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Unusable, match=f"^{target}: No space left on device$"):
        copy_once(volume.folder / NAME, target)


def test_once_copies_or_fails(volume: ConfigMapVolume, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(["--once", str(volume.folder / "missing"), str(target)]) == 1
        assert "No such file" in capsys.readouterr().err
        assert main(["--once", str(volume.folder / NAME), str(target)]) == 0
    finally:
        signal.signal(signal.SIGTERM, before)
    assert target.read_text() == "DCGM_FI_A, gauge, a.\n"


def test_it_goes_on_until_it_is_told_to_end_and_costs_little(
    volume: ConfigMapVolume, target: Path, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    program = (
        "import sys; from exporter.cli import keep_copy; keep_copy.SECONDS_BETWEEN_LOOKS = 0.05;"
        "sys.exit(keep_copy.main(sys.argv[1:]))"
    )
    with log.open("w") as writing:
        running = subprocess.Popen(
            [sys.executable, "-c", program, str(volume.folder / NAME), str(target)], cwd=ROOT, stderr=writing
        )
    try:
        wait_until(lambda: target.exists() and target.read_text() == "DCGM_FI_A, gauge, a.\n")
        volume.put("")
        wait_until(lambda: "it is empty" in log.read_text())
        assert target.read_text() == "DCGM_FI_A, gauge, a.\n"
        volume.put("DCGM_FI_B, gauge, b.\n")
        wait_until(lambda: target.read_text() == "DCGM_FI_B, gauge, b.\n")
        wait_until(lambda: "can be copied again" in log.read_text())  # it is said after the file is in place
        status = Path(f"/proc/{running.pid}/status").read_text()
        (resident,) = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))
        # the shipped limit is 32 MiB
        assert resident < 16 * 1024
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_SECONDS) == 0
    assert [line.partition(" ")[2].strip() for line in log.read_text().splitlines()] == [
        f"{target} is what {volume.folder / NAME} holds now",
        f"{volume.folder / NAME}: it is empty; {target} stays as it was",
        f"{target} is what {volume.folder / NAME} holds now",
        f"{volume.folder / NAME} can be copied again",
    ]
    # between two looks more time passes than the two seconds within which dcgm-exporter reloads once
    assert keep_copy.SECONDS_BETWEEN_LOOKS > 2
