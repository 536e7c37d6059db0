"""The drop for node-exporter: without timestamps, whole or not replaced at all."""

import os
from pathlib import Path

import pytest

from exporter.outputs.textfile import without_timestamps, write


def test_timestamps_go_and_nothing_else() -> None:
    page = b'# HELP a x 5\na 1 1700000000000\na{b="c 7 8"} 2\na{b="d"}\t3\t17\n# 1 2 3\n\na 1e5\n'
    assert without_timestamps(page) == b'# HELP a x 5\na 1\na{b="c 7 8"} 2\na{b="d"}\t3\n# 1 2 3\n\na 1e5\n'


def test_it_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "gpu.prom"
    path.write_text("old")
    before = path.stat().st_ino
    mask = os.umask(0o077)  # a service's umask must not lock node-exporter out
    try:
        write(path, b"new\n")
    finally:
        os.umask(mask)
    assert path.read_bytes() == b"new\n"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.stat().st_ino != before
    assert [found.name for found in tmp_path.iterdir()] == ["gpu.prom"]


# issue 7, line 33
def test_a_link_that_waits_where_it_writes_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may write to the folder, and know what the program's files were called and its process id."""
    secret = tmp_path / "shadow"
    secret.write_text("root's")
    secret.chmod(0o600)
    folder = tmp_path / "drop"
    folder.mkdir()
    path = folder / "gpu.prom"
    for name in ("", f".{os.getpid()}"):
        (folder / f".gpu.prom{name}.tmp").symlink_to(secret)
    path.symlink_to(secret)
    written: list[str] = []
    real = Path.replace

    def seen(one: Path, other: Path) -> Path:
        written.append(one.name)
        return real(one, other)

    monkeypatch.setattr(Path, "replace", seen)
    for _ in range(2):
        write(path, b"new\n")
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == ("root's", 0o600)
    assert (path.is_symlink(), path.read_text()) == (False, "new\n")
    assert len(set(written)) == 2  # no name comes twice


def test_the_old_file_stays_if_the_new_one_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "gpu.prom"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, b"new\n")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["gpu.prom"]
