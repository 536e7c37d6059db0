"""tests/build-kubernetes says what it lacks and what to do about it, and does nothing a second time.

Stand-ins are in place of Go and etcd. That it builds, `make test-on-kubernetes` shows.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.places import ROOT

SCRIPT = ROOT / "tests" / "build-kubernetes"
BUILT = "{version} {commit}\n".format(**dict(re.findall(r"^(version|commit)=(\S+)", SCRIPT.read_text(), re.MULTILINE)))


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with a `go` of 1.26, an `old-go` and an `etcd`."""
    made = tmp_path / "tools"
    made.mkdir()
    for name, says in (("go", "go1.26.3"), ("old-go", "go1.25.9"), ("etcd", "")):
        (made / name).write_text(f"#!/bin/sh\necho {says}\n")
        (made / name).chmod(0o755)
    return made


def build(folder: Path, tools: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run it for a folder."""
    others = {name: value for name, value in os.environ.items() if name != "SOURCE"}
    return subprocess.run(
        [SCRIPT, folder],
        env={**others, "GO": str(tools / "go"), "ETCD": str(tools / "etcd"), **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_second_build_does_nothing(tmp_path: Path, tools: Path) -> None:
    (tmp_path / "built").write_text(BUILT)
    ended = build(tmp_path, tools, SOURCE="/nonexistent", GO="/nonexistent")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["old-go", "none"])
def test_a_go_that_is_too_old_or_missing_is_named(tmp_path: Path, tools: Path, name: str) -> None:
    ended = build(tmp_path / "made", tools, GO=str(tools / name))
    assert ended.returncode == 1
    assert f"{tools / name} is no Go of 1.26 or later: name one in GO" in ended.stderr
    assert not [*(tmp_path / "made").iterdir()]


def test_a_source_that_is_not_there_is_named_with_a_remedy(tmp_path: Path, tools: Path) -> None:
    ended = build(tmp_path / "made", tools, SOURCE=f"file://{tmp_path}/none")
    assert ended.returncode == 1
    assert "the source cannot be had: name another place of it in SOURCE=" in ended.stderr
    assert not [*(tmp_path / "made").iterdir()]


def test_a_clone_without_the_commit_is_named_with_a_remedy(tmp_path: Path, tools: Path) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", clone], check=True, timeout=60)
    ended = build(tmp_path / "made", tools, SOURCE=str(clone))
    assert ended.returncode == 1
    assert f"{clone} has no commit {BUILT.split()[1]}: fetch it there" in ended.stderr
    assert not [*(tmp_path / "made").iterdir()]
