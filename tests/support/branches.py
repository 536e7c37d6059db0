"""Which branches of the exporter no test takes: one line in all, and the files with the most.

    python -m tests.support.branches FILE     (what `coverage json` wrote)

`make branches` does that. Nothing fails for it: it shows where to look. Only the tests' own process is counted. So a
command that the tests start as a program of its own (`exporter/cli`) looks worse than it is.
"""

import json
import sys
from pathlib import Path

FILES = 10
LINES = 12


def table(report: dict[str, object]) -> list[str]:
    """The lines to print for a report of `coverage json`."""
    files = report["files"]
    assert isinstance(files, dict)
    holes = sorted(
        ((found["summary"], name, found["missing_branches"]) for name, found in files.items()),
        key=lambda hole: (-hole[0]["missing_branches"], hole[1]),
    )
    total = sum(summary["num_branches"] for summary, _, _ in holes)
    missed = sum(summary["missing_branches"] for summary, _, _ in holes)
    said = [f"branch coverage: {(total - missed) / total:.1%}, {missed} of {total} branches not taken in this process"]
    for summary, name, branches in holes[:FILES]:
        if branches:
            lines = sorted({begin for begin, _ in branches})
            where = " ".join(map(str, lines[:LINES])) + (" …" if len(lines) > LINES else "")
            said.append(f"{summary['missing_branches']:4} of {summary['num_branches']:3}  {name}: {where}")
    return said


if __name__ == "__main__":
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text()))))
