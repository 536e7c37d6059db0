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


def test_where_it_cannot_write_the_old_file_stays_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "gpu.prom"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, b"new\n")
    assert path.read_text() == "old"
    assert [found.name for found in tmp_path.iterdir()] == ["gpu.prom"]
