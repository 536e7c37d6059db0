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
    """What a test says about the files that it makes. With `writes`, as of `make golden`, it writes them first."""

    def __init__(self, *, writes: bool) -> None:
        self.writes = writes

    def holds(self, path: Path, made: str) -> None:
        """The file has this text."""
        if self.writes:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(made.encode())
        kept = path.read_bytes().decode() if path.exists() else ""
        if kept != made:
            lines = unified_diff(kept.splitlines(), made.splitlines(), "kept", "made", lineterm="")
            name = path.relative_to(ROOT)
            pytest.fail("\n".join((f"{name} is not what is made: `make golden` writes it anew", *islice(lines, 60))))

    def holds_no_other(self, kept: Iterable[Path], made: Iterable[Path]) -> None:
        """None of the files that are there is left over: of a case, or an original, that there is no more."""
        left_over = {*kept} - {*made}
        if self.writes:
            for path in left_over:
                path.unlink()
            return
        assert left_over == set(), "nothing makes these: `make golden` removes them"
