"""`make bench`: run everything, print the table, keep it as JSON."""

import sys
from pathlib import Path

from benchmarks import containers, join, scrape, worst
from benchmarks.table import save, show

if __name__ == "__main__":
    rows = [*join.run(), *scrape.run(), *scrape.large_node(), *containers.run(), *worst.run()]
    print(show(rows))
    save(rows, Path(sys.argv[1] if len(sys.argv) > 1 else "bench-latest.json"))
