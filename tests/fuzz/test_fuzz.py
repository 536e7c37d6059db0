"""Some seconds of fuzzing in CI, a part of it for each target; a moment of it elsewhere. `make fuzz` runs longer.

What it found is here as plain cases.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from exporter.config.files import read_structured
from exporter.errors import ConfigError
from tests.fuzz import annotations, decoders, device_ids, engine, exposition
from tests.support.places import ROOT

IN_CI = os.environ.get("CI") == "true"
SECONDS = 5 if IN_CI else 1
RUNS = -1 if IN_CI else 500


@pytest.mark.timeout(SECONDS + 120)
def test_nothing_is_found() -> None:
    if not IN_CI:
        pytest.importorskip("atheris", reason="run `make fuzz` once: it installs atheris")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", f"--seconds={SECONDS}", f"--runs={RUNS}"],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count("Done ") == 4


@pytest.mark.parametrize("target", [exposition, device_ids, decoders, annotations], ids=lambda target: target.__name__)
def test_what_each_target_begins_with_is_fine(target: object) -> None:
    for seed in engine.seeds(target.__name__.rpartition(".")[2]):  # type: ignore[attr-defined]
        target.one_input(seed)  # type: ignore[attr-defined]


@pytest.mark.parametrize("number", range(len(decoders.DECODERS)))
@pytest.mark.parametrize(
    "body",
    [
        b"", b"\0", b"[]", b"{}", b"null", b"[" * 100_000, b'{"a":' * 100_000, b'{"object":{"metadata":{"name":[]}}}',
        b'{"type":"ADDED","object":{"spec":{"pool":{"generation":Infinity}}}}', b'{"type":"ADDED","object":{"spec":1}}',
    ],
    ids=lambda body: repr(body[:40]),
)  # fmt: skip
def test_decoders_refuse_in_the_same_way(number: int, body: bytes) -> None:
    decoders.one_input(bytes([number]) + body)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 100_000, "- " * 10_000, "2001-99-99", "!!python/object:os.x"])
def test_files_that_no_hand_wrote(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    try:
        read_structured(str(path), "--flag")
    except ConfigError as error:
        assert "\n" not in str(error)  # noqa: PT017 - one of the two
