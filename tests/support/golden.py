"""Files of the repository that are made of something else: `make golden` writes them, and tests hold them to it.

Since a file is compared with the very bytes that would be written, a second `make golden` changes nothing.
"""

from collections.abc import Iterable
from difflib import unified_diff
from itertools import islice
from pathlib import Path

import pytest

from tests.support.places import ROOT


class Golden:
    """Compares files with what a test makes. With `writes`, as in `make golden`, it writes them first."""

    def __init__(self, *, writes: bool) -> None:
        self.writes = writes

    def holds(self, path: Path, made: str) -> None:
        """Fail unless the file has this text."""
        if self.writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.encode())
        kept = path.read_bytes().decode() if path.exists() else ""
        if kept != made:
            lines = unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm="")
            name = path.relative_to(ROOT)
            pytest.fail("\n".join((f"{name} is not what is made: `make golden` writes it anew", *islice(lines, 60))))

    def holds_no_other(self, kept: Iterable[Path], made: Iterable[Path]) -> None:
        """Fail if a kept file is not made any more, since its case or original is gone. With `writes`, delete it."""
        left_over = {*kept} - {*made}
        if self.writes:
            for path in left_over:
                path.unlink()
            return
        assert left_over == set(), "nothing makes these files: `make golden` removes them"
