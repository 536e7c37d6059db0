"""`make bench-compare WITH=saved.json`: this run's figures against a saved run's, as ratios."""

import json
import sys
from pathlib import Path

LATEST = Path("bench-latest.json")


def compare(before: list[dict[str, object]], now: list[dict[str, object]]) -> str:
    """A line for each row of this run: its figure, that of the earlier run, and the ratio of the two numbers."""
    known = {row["what"]: row for row in before}
    lines = []
    for row in now:
        old = known.get(row["what"])
        ratio = f"{float(str(row['number'])) / float(str(old['number'])):5.2f}" if old and old["number"] else "  new"
        lines.append(f"{ratio}  {row['what']}: {row['figure']}" + (f" (before: {old['figure']})" if old else ""))
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2 or not Path(sys.argv[1]).exists() or not LATEST.exists():
        sys.exit(f"run `make bench` first, then: make bench-compare WITH=a saved copy of {LATEST}")
    print(compare(json.loads(Path(sys.argv[1]).read_text()), json.loads(LATEST.read_text())))
