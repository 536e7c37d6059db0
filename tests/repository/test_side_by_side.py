"""tests/support/side_by_side.py: every run counts, nothing is tried twice, and the slowest tests are named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.side_by_side import AT_ONCE, MOST_AT_ONCE, how_many

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): raise AssertionError('broken')\n"
SKIPPED = "import pytest\ndef test_skipped(): pytest.skip('not here')\n"
BROKEN = "import nothing_of_that_name\n"
SLOW = "import time\ndef test_slow(): time.sleep(0.3)\n"


def _run(folder: Path, *sources: str) -> subprocess.CompletedProcess[str]:
    """Run each source as a pytest of its own."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    files = []
    for number, source in enumerate(sources):
        file = folder / f"test_{number}.py"
        file.write_text(source)
        files += ["+", str(file)]
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-c", str(folder / "pytest.ini")]
    return subprocess.run(
        [sys.executable, "-m", "tests.support.side_by_side", *pytest_alone, *files],
        capture_output=True,
        text=True,
        check=False,
        # these tests need no plugin, and to load them takes seconds
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )


@pytest.mark.parametrize(
    ("sources", "code", "counts"),
    [
        ((PASSES, PASSES, SKIPPED), 0, "2 passed, 0 failed, 1 skipped"),
        ((PASSES, FAILS), 1, "1 passed, 1 failed, 0 skipped"),
        ((BROKEN, PASSES), 1, "1 passed, 1 failed, 0 skipped"),
        (("", PASSES), 0, "1 passed, 0 failed, 0 skipped"),
        (("",), 1, "0 passed, 0 failed, 0 skipped"),
    ],
)
def test_each_failure_fails_the_whole(tmp_path: Path, sources: tuple[str, ...], code: int, counts: str) -> None:
    run = _run(tmp_path, *sources)
    assert (run.returncode, run.stdout.splitlines()[-1]) == (code, counts), run.stdout + run.stderr


def test_all_runs_count_and_the_slowest_test_comes_first(tmp_path: Path) -> None:
    many = MOST_AT_ONCE + 1
    run = _run(tmp_path, SLOW, *[PASSES] * many)
    lines = run.stdout.splitlines()
    assert lines[-1] == f"{many + 1} passed, 0 failed, 0 skipped", run.stdout + run.stderr
    slowest = lines[lines.index(f"The {min(10, many + 1)} slowest tests, with their fixtures:") + 1 :]
    assert slowest[0].endswith("test_0.py::test_slow"), slowest
    assert float(slowest[0].split()[0]) >= 0.3
    assert " min " in lines[-2]


@pytest.mark.parametrize(
    ("running", "busy", "at_once"),
    [
        (AT_ONCE, 0.99, AT_ONCE),
        (AT_ONCE, 0.5, AT_ONCE + 1),
        (MOST_AT_ONCE, 0.5, MOST_AT_ONCE),
        (MOST_AT_ONCE, 0.99, AT_ONCE),
        (1, 0.1, AT_ONCE),
    ],
)
def test_more_runs_begin_while_the_processors_rest(running: int, busy: float, at_once: int) -> None:
    assert how_many(running, busy) == at_once
