"""A test that is late beside others gets one more try; what is broken, or fails in numbers, gets none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.side_by_side import SECOND_TRIES

PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): raise AssertionError('broken')\n"
FAILS_ONCE = """
from pathlib import Path
def test_fails_once():
    before = Path(__file__).with_suffix(".before")
    if not before.exists():
        before.touch()
        raise AssertionError("late")
"""
FAIL_IN_NUMBERS = f"""
import pytest
from pathlib import Path
@pytest.mark.parametrize("number", range({SECOND_TRIES + 1}))
def test_fails_once(number):
    before = Path(f"{{__file__}}.{{number}}")
    if not before.exists():
        before.touch()
        raise AssertionError("late")
"""


@pytest.mark.parametrize(
    ("first", "second", "code", "tries"),
    [
        (PASSES, FAILS, 1, 1),
        (FAILS_ONCE, FAILS_ONCE, 0, 2),
        (FAILS_ONCE, FAILS, 1, 2),
        (FAIL_IN_NUMBERS, PASSES, 1, 0),
        ("import nothing_of_that_name\n", PASSES, 1, 0),
    ],
)
def test_what_failed_beside_others_is_run_once_more(
    tmp_path: Path, first: str, second: str, code: int, tries: int
) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for name, source in (("test_first.py", first), ("test_second.py", second)):
        (tmp_path / name).write_text(source)
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-c", str(tmp_path / "pytest.ini")]
    files = ["+", str(tmp_path / "test_first.py"), "+", str(tmp_path / "test_second.py")]
    run = subprocess.run(
        [sys.executable, "-m", "tests.support.side_by_side", *pytest_alone, *files],
        capture_output=True,
        text=True,
        check=False,
        # these tests need no plugin, and to load them takes seconds
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert (run.returncode, run.stdout.count("once more alone: ")) == (code, tries), run.stdout + run.stderr
