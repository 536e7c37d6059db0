"""`make bench`: run everything, print the table, keep it as JSON.

`make bench ARGS=--quick` takes a tenth of the rounds: a minute instead of five, and figures with more noise.
"""

import argparse
from pathlib import Path

from benchmarks import (
    accounts,
    claims,
    cluster,
    containers,
    hami_shares,
    healthcheck,
    join,
    measuring,
    nvml,
    otlp,
    probe,
    processes,
    scrape,
    sharing,
    stops,
    turns,
    worst,
)
from benchmarks.compare import LATEST
from benchmarks.table import misses, save, show

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--output", type=Path, default=LATEST, help="where the figures go, as JSON")
    asked = parser.parse_args()
    effort = 0.1 if asked.quick else 1.0
    parts = (
        join.run,
        scrape.run,
        scrape.large_node,
        containers.run,
        accounts.run,
        sharing.run,
        claims.run,
        hami_shares.run,
        nvml.run,
        otlp.run,
        measuring.run,
        processes.run,
        probe.run,
        turns.run,
        healthcheck.run,
        worst.run,
        stops.run,
        cluster.run,
    )
    rows = [row for part in parts for row in part(effort)]
    print(show(rows))
    print(f"\n{misses(rows)}")
    save(rows, asked.output)
